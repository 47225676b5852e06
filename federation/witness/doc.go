// Package witness cosigns checkpoints of other logs, and has those of the domain's own ledger cosigned
// (C2SP tlog-witness and tlog-cosignature).
//
//	submission.go  a checkpoint that is submitted, both ends
//	logs.go        the logs that are witnessed, and their keys
//	witness.go     a witness: which checkpoints it takes and cosigns
//	serve.go       its routes
//	asker.go       asks the witnesses of the domain's ledger
//
// A witness cosigns a checkpoint that its log has signed, that continues the last one, and that the
// domain has taken by a compare-and-set of its own Raft: all nodes of the domain are one witness with
// several keys.
package witness
