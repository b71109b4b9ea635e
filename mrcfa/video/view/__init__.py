"""The live view: a web page that shows the frames and masks of `mrcfa run`."""
