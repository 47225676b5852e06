package main

import (
	"fmt"
	"os"
	"time"
)

// options name the sections to run and their sizes.
type options struct {
	sections []string
	full     bool
	turn     time.Duration // of one side in one round
	rounds   int
	size     int    // registrations of the sections that are about many
	binary   string // roster
	json     string
	keep     string // directory that keeps a filled data directory between runs
}

// A bench is one run: its options, the processes that it started, and its results.
type bench struct {
	options
	dir    string
	report report
	many   *filled // lives from the first section that needs it to the last
}

// note prints progress.
func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
