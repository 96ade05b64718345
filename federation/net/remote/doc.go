// Package remote runs the clients of an experiment at other institutions: its Server is a message.Remote over gRPC, and
// its Client executes the server's instructions with its state in a folder. It imports the engine, but no method.
//
// Each client has one stream. An instruction is in the server's memory and a reply in the client's until the other side
// has it: a reply has a receipt, and an instruction has a reply. Both are sent again when a lost connection is back.
// The state that must survive a crash is in the server's checkpoint and in the client's folder.
//
// Every instruction names the client's upload that counted last, and the last one in the server's checkpoint. The
// client therefore knows which states to keep, and goes back when the server had to: both sides may be killed at any
// moment. A client that gets an instruction again sends the same reply, which counts once.
package remote
