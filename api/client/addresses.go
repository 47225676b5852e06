package client

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roster-mesh/roster/api/wire"
)

const (
	// learnAfter is how long a client goes on with the addresses that it learned.
	learnAfter = time.Minute
	// maxLearned bounds the addresses that a client learns: a domain has a few members.
	maxLearned = 16
)

// An addressBook has the addresses of a directory's nodes, and which of them is asked next.
type addressBook struct {
	mu         sync.Mutex // guards the fields below
	all        []string   // those of the configuration, then those learned
	configured int        // the number of the former
	current    int        // the index of the address that is asked next
	learn      bool
	learned    time.Time // when a node named the addresses of the others
}

func newAddressBook(addresses []string, learn bool) *addressBook {
	return &addressBook{all: addresses, configured: len(addresses), learn: learn}
}

// next returns the address that is asked next.
func (b *addressBook) next() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.all[b.current]
}

func (b *addressBook) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()

	return len(b.all)
}

// leave has the next request go to another address than that one.
func (b *addressBook) leave(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.all[b.current] == address { // else another request has left it already
		b.current = (b.current + 1) % len(b.all)
	}
}

// wants reports whether the next request is to ask for the addresses of the other nodes.
func (b *addressBook) wants(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.learn && now.Sub(b.learned) > learnAfter
}

// observe takes from an answer the addresses of other nodes, and whether the one that
// answered is about to leave. In HTTP/2 the transport sees that alone, by GOAWAY: it makes
// a new connection, which fails once the node is gone.
func (b *addressBook) observe(address string, resp *http.Response) {
	if list := resp.Header.Get(wire.HeaderNodes); list != "" {
		b.add(list)
	}

	if resp.Close {
		b.leave(address)
	}
}

// add replaces the learned addresses. All but https://HOST[:PORT] are left out: plain http,
// which a configuration may have for loopback, would show the caller's token to any program
// of this machine.
func (b *addressBook) add(list string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if !b.learn {
		return
	}

	// The client stays with the node that it talks to, at whatever place that is in the new list.
	current := b.all[b.current]
	all := slices.Clone(b.all[:b.configured])

	for named := range strings.SplitSeq(list, ",") {
		base, err := parseAddress(strings.TrimSpace(named))
		usable := err == nil && strings.HasPrefix(base, "https://") && !slices.Contains(all, base)

		if usable && len(all) < b.configured+maxLearned {
			all = append(all, base)
		}
	}

	b.all = all
	b.current = max(0, slices.Index(all, current))
	b.learned = time.Now()
}
