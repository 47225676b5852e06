package federation

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// A peer whose every answer comes just before it is given up, or never, or is longer
// than any may be, keeps nobody from what another says.
//
// Requirement: MESH-026
func TestASlowPeerHoldsUpNobodyElse(t *testing.T) {
	for name, answer := range map[string]func(*http.Request, []byte) []byte{
		"slow": func(_ *http.Request, body []byte) []byte {
			time.Sleep(protocol.AnswerTime - time.Second)
			return body
		},
		"silent":  func(r *http.Request, _ []byte) []byte { <-r.Context().Done(); return nil },
		"endless": func(*http.Request, []byte) []byte { return make([]byte, 2*protocol.MaxPage) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSquad(t)
				s.world.tap = func(to string, r *http.Request, body []byte) []byte {
					if to == s.a.base {
						return answer(r, body)
					}

					return body
				}
				stops := []func(){s.a.run(t), s.b.run(t), s.g.run(t)}
				synctest.Wait()
				eventually(t, time.Minute, "gamma is followed", func() bool {
					p := s.b.status(gamma)
					return p.State == "active"
				})

				for i := range 20 {
					s.origin.register(fmt.Sprint("of-the-slow-", i), 3600)
					rid := s.g.self.register(fmt.Sprint("of-the-other-", i), 3600)
					eventually(t, time.Second, "what the other says is shown", func() bool {
						return s.b.shown(gamma)[rid] != nil
					})
					time.Sleep(3 * time.Second)
				}

				if got := len(s.b.shown(alpha)); name != "slow" && got != 0 {
					t.Errorf("%d of what never came are shown", got)
				}

				for _, stop := range stops {
					stop()
				}
			})
		})
	}
}

// status is what a node tells of a peer.
func (s *site) status(of interface{ Name() string }) (p replica.PeerStatus) {
	for _, p := range s.Peers() {
		if p.Domain.Name() == of.Name() {
			return p
		}
	}

	return p
}
