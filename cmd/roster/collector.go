package main

import "os"

// ballast is never touched, so it takes address space and no memory; but the
// collector counts it, and begins when as much again has been allocated.
var ballast []byte //nolint:unused // to be reachable is all that it is for

// ballastSize is about what a busy node allocates in 2,000 registrations.
const ballastSize = 64 << 20

// steadyCollector keeps the collector of a process that serves from running all
// the time while there is little to keep: a node with a few thousand
// registrations has a heap of some megabytes, and would be collected every few
// hundred requests. Whoever sets GOGC or GOMEMLIMIT has decided otherwise.
func steadyCollector() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		ballast = make([]byte, ballastSize)
	}
}
