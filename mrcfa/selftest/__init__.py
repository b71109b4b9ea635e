"""`mrcfa selftest` checks a bundle on this machine; `mrcfa doctor` checks the machine itself."""
