package transport

// Forged is an order that says that the run is over, signed with a key of the forger's.
func Forged(run string, client, of int) ([]byte, error) {
	o := order{Run: run, Try: NewID(), Seq: 1 << 62, Kind: endKind, Client: client, Of: of}
	o.of(nil)
	o.ID = o.identity()
	return pack(signer{testKey}, orderMessage, o, nil)
}
