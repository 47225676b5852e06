package api

import (
	"net/http"
	"sync"

	"github.com/roster-mesh/roster/directory"
)

// What answers that their clients have not read yet may hold in memory. A page of large
// registrations has megabytes, may be asked for hundreds of times a second, and may be
// read for minutes.
const (
	maxUnread  = 256 << 20 // bytes, of all callers
	perUnread  = 16 << 10  // what each answer takes beside its body
	soonUnread = 4 << 10   // net/http takes as much whether it is read or not
)

// unread counts them.
type unread struct {
	most int // maxUnread

	mu  sync.Mutex // guards what follows
	all int
	by  map[string]int
}

func newUnread(most int) unread { return unread{most: most, by: map[string]int{}} }

// hold counts so many bytes for a caller until release is called, or refuses them. Nobody
// gets more than a quarter of what is left then: one has a fifth of all at most, and many
// that read nothing leave something for who comes after them.
func (u *unread) hold(caller string, n int) (release func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.by[caller]+n <= (u.most-u.all)/4:
	case u.by[caller] > 0:
		return nil, directory.Refuse(directory.RateLimited, "%d KiB of answers to you are under way: read them first.", u.by[caller]>>10)
	default:
		return nil, directory.Refuse(directory.Unavailable, "This node has more answers under way than it has room for.")
	}
	u.all += n
	u.by[caller] += n
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.all -= n
		if u.by[caller] -= n; u.by[caller] == 0 {
			delete(u.by, caller)
		}
	}, nil
}

// answer is write of a 200 to a question, which may be large.
func answer(w http.ResponseWriter, c *call, contentType string, body []byte) error {
	if len(body) > soonUnread {
		release, err := c.server.unread.hold(c.server.partyOf(c), len(body)+perUnread)
		if err != nil {
			return err
		}
		defer release()
	}
	write(w, c.Request, http.StatusOK, contentType, body)
	return nil
}

// partyOf is callerOf, but for identities of another domain, which may make as many as it
// likes.
func (s *Server) partyOf(c *call) string {
	if id, ok := c.id.SPIFFE(); ok && id.TrustDomain() != s.cfg.Domain {
		return id.TrustDomain().Name()
	}
	return callerOf(c)
}
