// Package audit writes a node's audit log: one JSON line for the intent and one for
// the outcome of each change, and sampled lines for refusals.
//
//	log, err := audit.Open(path, audit.Options{Size: 64 << 20, Files: 10, Logger: logger})
//	if err := log.Intend(event); err != nil {
//		return err // no change is made that the log does not hold
//	}
//	log.Done(event)
//
// [Log.Intend] and [Log.Done] return once the operating system has the line, so a
// killed process loses none. A change whose intent cannot be written is refused.
// Lines that could not be written are counted, and the next line that can be is
// preceded by one with that count.
//
// Refusals never block a request: [Log.Refused] queues them, and [Log.Run] writes at
// most ten lines of each identity in a minute and a count of the rest.
//
// # Files
//
//	log                    the log: its lines, rotation, retention and sampling
//	tail                   reads the newest lines of a log
package audit
