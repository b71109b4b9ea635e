"""8-bit variants: calibration, sensitivity and Q/DQ nodes for graphs whose products allow them."""
