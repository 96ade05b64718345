package secagg

// Sizes of the largest messages of a client, in bytes, where clients are so many.

// MostJoining is that of a Joining.
func MostJoining(clients int) int {
	return 4 + 3*keySize + 2 + maxSignature + maxProof + mostFixed(clients, fingerprintSize)
}

// MostEncryptedShares is that of EncryptedShares.
func MostEncryptedShares(clients int) int {
	return mostList(clients, 2*keySize+sealedSize+maxSignature)
}

// MostComplaints is that of Complaints.
func MostComplaints(clients int) int { return mostList(clients, keySize+proofSize) }

// MostSignature is that of a signature under a view.
const MostSignature = maxSignature

// MostShares is that of Shares.
func MostShares(clients int) int { return mostFixed(clients, secretSize) }

// mostList is that of what encodeList writes.
func mostList(clients, size int) int { return 4 + clients*(8+size) }

// mostFixed is that of what encodeFixed writes.
func mostFixed(clients, size int) int { return 4 + clients*(4+size) }
