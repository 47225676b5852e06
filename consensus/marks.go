package consensus

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// A marker marks the requests that this process sends to the leader, so that it knows them in the log: a
// thief of this node's key can send others in its name. The mark is a random number and its HMAC with the
// caller by a secret of the process. A reader of the log can repeat a mark, but for that caller alone.
type marker struct {
	secret [sha256.Size]byte
	// since is from when on the log's entries in this node's name are of this process: an earlier one may
	// have sent those before.
	since time.Time
}

// Sizes of the parts of a mark, in bytes.
const (
	markNumber = 8
	markSum    = 16
)

func newMarker(write time.Duration) *marker {
	m := &marker{since: time.Now().Add(write + maxOff)}
	_, _ = rand.Read(m.secret[:]) // never fails

	return m
}

// mark returns a new mark for a request of a caller.
func (m *marker) mark(caller directory.Identity) []byte {
	mark := make([]byte, markNumber, markNumber+sha256.Size)
	_, _ = rand.Read(mark) // never fails

	return m.sum(mark, caller)[:markNumber+markSum]
}

// sum returns the number with its HMAC.
func (m *marker) sum(number []byte, caller directory.Identity) []byte {
	mac := hmac.New(sha256.New, m.secret[:])
	mac.Write(number)
	mac.Write([]byte(caller.String()))

	return mac.Sum(number)
}

// sent reports whether this process has sent the request of a command that is in the log with a mark
// since a time.
func (m *marker) sent(mark []byte, caller directory.Identity, at time.Time) bool {
	if at.Before(m.since) {
		return true
	}

	if len(mark) != markNumber+markSum {
		return false
	}

	return hmac.Equal(m.sum(mark[:markNumber:markNumber], caller)[:len(mark)], mark)
}
