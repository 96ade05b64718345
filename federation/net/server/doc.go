// Package server runs the server of an experiment whose clients are at other institutions: its Server is a
// message.Cohort over gRPC. It imports the engine and wire, but no method and no client.
//
// A client makes calls: it joins, waits for its next instruction, and sends its reply. Each call may be repeated. The
// state that must survive a crash is in the server's checkpoint and in the client's folder.
//
// Every instruction names the client's upload that counted last, and the last one in the server's checkpoint. The
// client therefore knows which states to keep, and goes back when the server had to: both sides may be killed at any
// moment. A client that gets an instruction again sends the same reply, which counts once.
//
// State that calls share has an owner with its own lock: members, mailboxes, counters, and the collection in
// progress. A lock is held to copy, to compare and to set, and nothing is decoded, expanded, computed or
// written to a file under it, but for the line of the log that says why a client has no answer. Under the lock of a
// collection only counters are locked, and under the other locks nothing. The encoded status has a lock of its own,
// which only its readers wait for.
//
// No member ends, holds or slows a run. Four rules keep that:
//
//   - Nothing that a member says is expanded, allocated or computed before its sizes and their product are bounded, and
//     never under a lock that other members or the status need.
//   - An error that a member's words can cause belongs to that member: it is refused, named and counted, and the run
//     goes on, also after --resume.
//   - Every wait ends: in a smaller quorum, never below the threshold of secure aggregation, or in an error that names
//     who is missing and after which --resume continues. Only --deadline 0 and an explicit --quorum wait without end.
//   - What a member claims about itself enters a decision only through something that one of many cannot move beyond a
//     stated bound, such as a median.
package server
