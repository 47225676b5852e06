// Package audit writes a node's audit log: one JSON line for the intent and one for
// the outcome of each change, one for each command of an operator and each change by another member
// that was applied, and sampled lines for refusals.
//
//	log, err := audit.Open(path, audit.Options{Size: 64 << 20, Files: 32, Logger: logger})
//	done, err := log.Intend(event)
//	if err != nil {
//		return err // no change is made that the log does not hold
//	}
//	done(event)
//
// [Log.Intend] and done return once the operating system has the line, so a killed process
// loses none. A change whose intent cannot be written is refused. A line about a change that
// was made waits until there is room, and [Log.Err] reports that. Other lines that could not
// be written are counted, and the next line that can be is preceded by one with that count.
//
// # The chain
//
// Each line ends in its number n and in prev, the SHA-256 of the bytes of the line before
// it without the newline, as base64url. The chain goes on across files and restarts. The
// first line of each file, of the phase rotated, names the oldest line that is kept, and
// how many were removed with the file that has gone.
//
// # Bounds of one caller
//
// Texts are cut at 192 bytes, and lists are written once. A difference has 64 lines, and
// counts the others. Refusals never block a request: [Log.Refused] queues them, and [Log.Run]
// writes at most ten lines of each caller in a minute and a count of the rest. Refreshes of a
// caller beyond 64 KiB of lines in a minute are counted too.
//
// # Files
//
//	log                    the log: intents, outcomes, applied commands
//	line                   a line, its bounds and its chain
//	difference             what an operator's command changed
//	files                  start, rotation, retention
//	refusals, refreshes    sampled lines
//	tail                   reads the newest lines of a log
package audit
