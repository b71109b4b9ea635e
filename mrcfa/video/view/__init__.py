"""The live view: a page that shows what `mrcfa run` sees, to any number of viewers."""
