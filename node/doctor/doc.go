// Package doctor diagnoses one node from beside it, whether the node runs or not, and
// suggests an action for each finding. It changes nothing. `roster doctor` is this
// package.
//
//	findings := doctor.Diagnose(ctx, cfg, operator)   // operator may be nil
//	status := doctor.Worst(findings)
//	parts, err := doctor.WriteArchive(ctx, file, cfg, operator, "node.log")
//
// # Files
//
//	doctor   findings, and the checks of identity, bundles, ports, raft, peers and clocks
//	judge    thresholds, and the judgements that "roster status" shares
//	machine  names, and keys that shouldn't be on the node's machine
//	disk     the checks of the disk's space and speed, and of the audit log's end
//	health   the checks of a running node's metrics
//	archive  the support archive; parts makes its files, secrets removes what doesn't belong there
package doctor
