"""A folder of static files that segments videos in a visitor's browser."""
