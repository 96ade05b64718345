// Package remote runs the clients of an experiment at other institutions: its Server is a message.Cohort over gRPC, and
// its Client executes the server's instructions with its state in a folder. It imports the engine, but no method.
//
// Each client has one stream. An instruction is in the server's memory and a reply in the client's until the other side
// has it: a reply has a receipt, and an instruction has a reply. Both are sent again when a lost connection is back.
// The state that must survive a crash is in the server's checkpoint and in the client's folder.
//
// Every instruction names the client's upload that counted last, and the last one in the server's checkpoint. The
// client therefore knows which states to keep, and goes back when the server had to: both sides may be killed at any
// moment. A client that gets an instruction again sends the same reply, which counts once.
//
// No member ends, holds or slows a run. Four rules keep that:
//
//   - Nothing that a member says is expanded, allocated or computed before its sizes and their product are bounded, and
//     never under Server.mu or another lock that other members or the status need.
//   - An error that a member's words can cause belongs to that member: it is refused, named and counted, and the run
//     goes on, also after --resume.
//   - Every wait ends: in a smaller quorum, never below the threshold of secure aggregation, or in an error that names
//     who is missing and after which --resume continues. Only --deadline 0 and an explicit --quorum wait without end.
//   - What a member claims about itself enters a decision only through something that one of many cannot move beyond a
//     stated bound, such as a median.
package remote
