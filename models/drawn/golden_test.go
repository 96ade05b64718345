package drawn

// goldenDigest is the SHA-256 of the pixels of seed 7 at 32x32, class by class and domain by domain.
const goldenDigest = "4da9101366c4fc9c53fa6ad6a87a7142864f2e366e4847ea9b292a1ab3c96840"
