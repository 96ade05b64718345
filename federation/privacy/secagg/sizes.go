package secagg

// Sizes of the largest messages of a client, in bytes, with so many clients.

// MaxJoiningSize returns that of a Joining.
func MaxJoiningSize(clients int) int {
	return 4 + 3*keySize + 2 + maxSignature + maxProof + mostFixed(clients, fingerprintSize)
}

// MaxEncryptedSharesSize returns that of EncryptedShares.
func MaxEncryptedSharesSize(clients int) int {
	return mostList(clients, 2*keySize+sealedSize+maxSignature)
}

// MaxComplaintsSize returns that of Complaints.
func MaxComplaintsSize(clients int) int { return mostList(clients, keySize+proofSize) }

// MaxSignatureSize is that of a signature of a view.
const MaxSignatureSize = maxSignature

// MaxSharesSize returns that of Shares.
func MaxSharesSize(clients int) int { return mostFixed(clients, secretSize) }

// mostList returns that of encodeList's result.
func mostList(clients, size int) int { return 4 + clients*(8+size) }

// mostFixed returns that of encodeFixed's result.
func mostFixed(clients, size int) int { return 4 + clients*(4+size) }
