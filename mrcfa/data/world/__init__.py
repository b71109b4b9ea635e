"""The sample world: street scenes with exact masks, made by numpy alone. A seed is a scene."""
