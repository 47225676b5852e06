package main

import (
	"os"
	"runtime/debug"
)

// ballast is never touched, so it takes address space and no memory; but the
// collector counts it.
//
//lint:ignore U1000 to be reachable is all that it is for
var ballast []byte

// The collector begins when nearly as much as is kept has been allocated again, or
// as the ballast where there is little else. So a node with 10^6 registrations stays
// under 3 GB and is not collected all the time, and neither is one with few.
const (
	collectPercent = 90
	ballastSize    = 140 << 20
)

// steadyCollector tells the collector of a process that serves when to run.
// Whoever sets GOGC or GOMEMLIMIT has decided otherwise.
func steadyCollector() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(collectPercent)
		ballast = make([]byte, ballastSize)
	}
}
