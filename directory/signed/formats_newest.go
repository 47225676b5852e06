//go:build !compatnext

package signed

// newestFormat is the highest format of every structure that this build reads
// and can write.
const newestFormat = 1

// criticalExtensions are the names of ext that this build understands when crit
// names them. This release has none.
var criticalExtensions []string

// appendLaterMembers appends the listed members that formats after the first
// have behind those of format 1. This release knows no such format.
func appendLaterMembers(b []byte, _ uint) []byte { return b }
