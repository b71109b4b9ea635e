"""`mrcfa selftest`: does a bundle compute what it should on this machine, in every way it can?"""
