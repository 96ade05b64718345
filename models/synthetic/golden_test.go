package synthetic

// goldenDigest is the SHA-256 of the pixels of seed 7 at 32x32, class by class and domain by domain.
const goldenDigest = "633c72e92a36e52fc405cc6f73fc9c6ed415f1f23023df78737c7724b936f4cb"
