// Package secure runs secure aggregation in the rounds of an experiment, with any cohort. A Guard on the clients' side
// masks a client's upload as integers, and Wrap gives the server one upload, the mean of all. The steps of package
// secagg are ordinary instructions and replies, so no transport needs to know of them. It imports engine/message, not
// the engine.
//
// A client's vector consists of three parts: the changes of its shared parameters, each clipped at Clip, rounded to an
// integer number of steps and multiplied by the client's weight; likewise the extra tensors that it uploads, one for
// each shared parameter; then its weight, its loss and the number of clipped elements. The server therefore learns the
// sums of these over the clients of a round and who these clients are, but no upload, number of examples or loss of one
// client. The mean differs from that of plain uploads by at most half a step plus the rounding of float32.
//
// A client checks the server: the number of clients and the minimum size of a sum follow from the client's own
// configuration; each round has one session and one vector, also after the client restarts; and the client's folder
// lists what it saw of each round.
//
// Only methods whose server needs nothing but the mean can take part. Evaluation results are not aggregated.
package secure
