package attacks

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/trust"
)

// asNode returns a client that speaks as the false peer's node.
func (p *falsePeer) asNode(m *runningMesh) *http.Client {
	svid, err := p.ca.Issue("/roster/node/1", time.Hour, time.Now())
	must(m.t, err)

	return clientOf(m.t, m.trusting(*trust.NewSource(svid).Certificate()))
}

// A recording has the answers of an honest domain's node at one time, by path.
type recording map[string]string

// record asks a node of the second domain, as a node of the first one, what a relay could repeat.
func (m *runningMesh) record(of dev.Node, origin string) recording {
	m.t.Helper()

	answers := recording{}
	as := clientOf(m.t, m.memberTLS(m.Domains[0].Nodes[0]))

	for _, path := range []string{"keys", "heads", "pages"} {
		query := url.Values{"origin": {origin}}
		if path == "pages" {
			query.Set("aud", "mesh")
			query.Set("since", "0")
		}

		status, answer, err := ask(m.t.Context(), as, http.MethodGet, of.API+"/federation/v1/"+path+"?"+query.Encode(),
			nil)
		if err != nil || status != http.StatusOK {
			m.t.Fatalf("%s: %d %s: %v", path, status, answer, err)
		}

		answers[path] = string(answer)
	}

	return answers
}

// forgedWord returns pages and evidence in a domain's name, by an authority and keys that two others made up.
func forgedWord(t *testing.T, origin string, epoch uint64) (page string, evidence []byte) {
	t.Helper()

	forger := newDomain(t, origin)
	digest := announcements(1)[0]
	sign := func(change func(*signed.Digest)) string {
		said := digest
		change(&said)

		text, err := forger.ring.Sign(signed.TypePage, (&signed.Page{Issuer: forger.name, Epoch: epoch,
			Audience: directory.Mesh, To: 1 << 40, At: 1 << 40, IssuedAt: time.Now().Unix(),
			Digests: []signed.Digest{said}}).Payload())
		must(t, err)

		return text
	}
	page = sign(func(*signed.Digest) {})

	_, keys, _ := forger.ring.Keys(forger.name)
	bundle, err := forger.ca.Bundle().Marshal()
	must(t, err)

	return page, (&trust.Evidence{Offence: trust.TwoDigests, Keys: []string{keys}, Bundle: bundle,
		Pages: []string{page, sign(func(said *signed.Digest) { said.Deadline++ })}}).Bytes()
}

// Two peers act together against a third, whose only node is cut off: one repeats what it said before an agent
// was removed and another one came, the other forges its pages, and both show evidence that they made up. The
// domain shows what the third said last, does not take it for guilty, and says that it doesn't answer.
//
// Requirement: MESH-017, MESH-022
func TestTwoPeersTogetherSpeakForNoThird(t *testing.T) {
	m := startMesh(t, "--domains", "2")
	victim, third, origin := m.Domains[0].Nodes[0], m.Domains[1].Nodes[0], m.Domains[1].TrustDomain
	reader, owner := m.as(0, "agent/eve"), m.as(1, "agent/ada")

	shown := func(names ...string) (found []string) {
		for _, name := range names {
			status, answer, err := ask(t.Context(), reader, http.MethodGet,
				victim.API+"/ad/l?agent="+name+"&domain="+origin, nil)
			if err != nil || status != http.StatusOK && status != http.StatusNotFound {
				t.Fatalf("looking %s up: %d %s: %v", name, status, answer, err)
			}

			if strings.Contains(string(answer), `"`+name+`"`) {
				found = append(found, name)
			}
		}

		return found
	}
	shows := func(want string) {
		t.Helper()
		eventually(t, time.Minute, "shown is "+want, func() error {
			if found := shown("before", "after"); strings.Join(found, " ") != want {
				return fmt.Errorf("shown are %q", found)
			}

			return nil
		})
	}
	register := func(name string) string {
		t.Helper()

		status, location, answer, err := m.register(owner, third.API+"/ad/r?lt=3600&agent="+name,
			[]byte(`{"base":"https://a.example/"}`))
		if err != nil || status != http.StatusCreated {
			t.Fatalf("%s: %d %s %v", name, status, answer, err)
		}

		return location
	}

	location := register("before")
	shows("before")

	old := m.record(third, origin)

	status, answer, err := ask(t.Context(), owner, http.MethodDelete, third.API+location, nil)
	if err != nil || status >= http.StatusBadRequest {
		t.Fatalf("removing: %d %s: %v", status, answer, err)
	}

	register("after")
	shows("after")

	payload, err := directory.B64.DecodeString(strings.Split(old["heads"], ".")[1])
	must(t, err)

	var head struct {
		Epoch uint64 `json:"epoch"`
	}

	must(t, json.Unmarshal(payload, &head))
	page, evidence := forgedWord(t, origin, head.Epoch)

	var asked [2]atomic.Int64

	relays := func(which int, pages string) func(*falsePeer) {
		return func(p *falsePeer) {
			p.relay = func(w http.ResponseWriter, r *http.Request) {
				asked[which].Add(1)

				path := strings.TrimPrefix(r.URL.Path, "/federation/v1/")
				answer := old[path]

				if path == "pages" {
					answer = pages
				}

				w.Header().Set("Content-Type", "application/jose")
				_, _ = io.WriteString(w, answer)
			}
		}
	}
	peers := []*falsePeer{
		m.newFalsePeer("one.test", relays(0, old["pages"])), m.newFalsePeer("two.test", relays(1, page)),
	}

	must(t, syscall.Kill(third.PID, syscall.SIGKILL))

	eventually(t, 2*time.Minute, "both are asked, and a forged page is refused", func() error {
		refused := m.peerStatus(victim, "two.test").Refused
		if one, two := asked[0].Load(), asked[1].Load(); one == 0 || two == 0 || len(refused) == 0 {
			return fmt.Errorf("they are asked %d and %d times, refused are %v", one, two, refused)
		}

		return nil
	})

	for _, peer := range peers {
		status, answer, err := ask(t.Context(), peer.asNode(m), http.MethodPost, victim.API+"/federation/v1/evidence",
			evidence)
		if err != nil || status != http.StatusBadRequest {
			t.Errorf("evidence of %s: %d %s: %v", peer.name, status, answer, err)
		}
	}

	eventually(t, 2*time.Minute, "the third is said not to answer", func() error {
		if is := m.peerStatus(victim, origin); is.State != "unreachable" || is.Agreed != "active" {
			return fmt.Errorf("it is %s, agreed %s: %s", is.State, is.Agreed, is.LastError)
		}

		return nil
	})
	shows("after")

	t.Logf("they were asked %d and %d times", asked[0].Load(), asked[1].Load())
}
