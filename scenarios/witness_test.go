package scenarios

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/scenarios/mesh"
	"github.com/roster-mesh/roster/trust"
)

// witnessedAt returns nil if a node of an agent's domain shows it as logged, and as witnessed or not.
func witnessedAt(n *mesh.Node, agent *mesh.Agent, want bool) error {
	text, err := file(n, "/ad/r/"+agent.RID)
	if err != nil {
		return err
	}

	var shown struct {
		Provenance struct {
			Verification struct {
				Logged    bool             `json:"logged"`
				Witnessed bool             `json:"witnessed"`
				Witnesses []map[string]any `json:"witnesses"`
			} `json:"verification"`
		} `json:"provenance"`
	}
	if err := json.Unmarshal([]byte(text), &shown); err != nil {
		return err
	}

	is := shown.Provenance.Verification
	if !is.Logged || is.Witnessed != want || want != (len(is.Witnesses) > 0) {
		return fmt.Errorf("%s shows %s as %+v", n.Name, agent.Name, is)
	}

	for _, witness := range is.Witnesses {
		if name, _ := witness["name"].(string); !strings.HasPrefix(name, "beta.test/roster/") {
			return fmt.Errorf("%s says that %v has cosigned", n.Name, witness)
		}
	}

	return nil
}

// Peers cosign each other's ledgers: what is registered is witnessed within 15 seconds, at every member,
// and a stranger's verifier believes the checkpoint by the policy file, which asks for a peer. While the
// witness can't be reached, nothing is held up, and what is new is not witnessed.
//
// Requirement: MESH-023, LOG-013, LOG-006
func TestPeersWitnessEachOther(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 3, Seed: seed, Link: wan})
		alpha := m.Domain("alpha.test")

		everywhere := func(agent *mesh.Agent, want bool) func() error {
			return func() (err error) {
				for _, n := range alpha.Nodes {
					err = errors.Join(err, witnessedAt(n, agent, want))
				}

				return err
			}
		}

		ada := m.Register("alpha.test", "ada", 3600)
		m.Eventually(15*time.Second, "ada is witnessed", everywhere(ada, true))

		for _, n := range alpha.Nodes {
			found, err := judgeLedger(n)
			must(t, err)

			if found.policy == nil || found.tree.N == 0 {
				t.Errorf("%s shows %+v", n.Name, found.tree)
			}
		}

		epoch := strings.SplitN(valueOf(file(alpha.Nodes[0], "/log/checkpoint")), "\n", 2)[0]
		policy := valueOf(file(alpha.Nodes[0], "/log/"+epoch[strings.LastIndexByte(epoch, '/')+1:]+"/policy"))

		if !strings.Contains(policy, "group beta.test any ") || !strings.Contains(policy, "quorum witnesses\n") {
			t.Errorf("the policy is %s", policy)
		}

		m.CutOff("beta.test")
		bob := m.Register("alpha.test", "bob", 3600)

		m.Eventually(10*time.Second, "bob is logged", everywhere(bob, false))
		m.Sleep(90 * time.Second)

		if err := errors.Join(everywhere(bob, false)(), everywhere(ada, true)()); err != nil {
			t.Error(err)
		}

		// A newer checkpoint without cosignatures is shown in the end.
		if text := valueOf(file(alpha.Nodes[0], "/log/checkpoint")); strings.Contains(text, "/witness/") {
			t.Errorf("an old checkpoint is shown: %s", text)
		}

		m.Heal()
		m.Eventually(3*time.Minute, "bob is witnessed", everywhere(bob, true))
	})
}

// A ledger that shows two roots of one size, to one witness or one to each of two, has contradicted itself: all
// peers freeze its domain within the two rounds, and the evidence convicts it before a verifier that has nothing
// but its bundle.
//
// Requirement: LOG-017, MESH-022
func TestTwoRootsOfALedgerFreezeItsDomain(t *testing.T) {
	for name, witness := range map[string]string{"to one witness": "beta.test", "to two witnesses": "gamma.test"} {
		t.Run(name, func(t *testing.T) {
			runStory(t, 1, func(t *testing.T, seed uint64) {
				m := mesh.Start(t, mesh.Options{Domains: 3, Seed: seed, Link: wan})
				liar := m.Domain("alpha.test")

				// Otherwise alpha.test would show gamma.test the other root itself.
				m.Cut("alpha.test", "gamma.test")
				m.Register("alpha.test", "ada", 3600)

				var taken *checkpoint.Note

				m.Eventually(30*time.Second, "beta.test has cosigned the ledger", func() (err error) {
					shown := valueOf(checkpoint.Parse(valueOf(file(liar.Nodes[0], "/log/checkpoint"))))
					if taken, err = cosignedLast(m, "beta.test", shown.Origin); err == nil && shown.Size != taken.Size {
						err = fmt.Errorf("it has %d entries of %d", taken.Size, shown.Size)
					}

					if err != nil {
						return err
					}

					return nil
				})

				want := http.StatusOK
				if witness == "beta.test" { // it has cosigned the first root
					want = http.StatusUnprocessableEntity
				}

				m.Eventually(30*time.Second, witness+" has judged another root of the same size", func() error {
					if got := showOtherRoot(t, m, witness, taken.Checkpoint); got != want {
						return fmt.Errorf("it answers %d, want %d", got, want)
					}

					return nil
				})

				took := m.Eventually(rounds, "alpha.test is frozen", func() error { return m.Frozen("alpha.test") })
				t.Logf("frozen by all after %v", took)

				for _, n := range m.Living() {
					if n.Domain == liar {
						continue
					}

					_, err := trust.Verify(n.Evidence("alpha.test"), trust.VerifyOptions{Bundle: liar.Bundle()})
					if trust.ExitCode(err) != 11 {
						t.Errorf("the evidence at %s: %v", n.Name, err)
					}
				}
			})
		})
	}
}

// A domain that shows two ledgers, each to a part of its peers, is frozen by all of them within the two rounds, whether
// or not it has the two cosigned. What it makes up of other ledgers freezes nobody, and neither does a domain that is a
// peer of its peers alone.
//
// Requirement: LOG-017, MESH-022
func TestTwoLedgersFreezeTheirDomain(t *testing.T) {
	for _, cosigned := range []bool{false, true} {
		t.Run(fmt.Sprint("cosigned ", cosigned), func(t *testing.T) {
			runStory(t, 1, func(t *testing.T, seed uint64) {
				m := mesh.Start(t, mesh.Options{Domains: 6, Seed: seed, Link: wan})
				apart := m.Domain("zeta.test").Nodes[0]
				operator := apiclient.NewDirect(apart.URL(), apart.HTTP("/ops/operator")).Operator()
				must(t, operator.ChangePeering(t.Context(), "alpha.test", apiclient.PeerRemove))

				m.Register("alpha.test", "ada", 3600)
				m.Sleep(time.Minute) // all have followed the ledger

				alpha := m.Domain("alpha.test").Nodes[0]
				note := valueOf(checkpoint.Parse(valueOf(file(alpha, "/log/checkpoint"))))
				entries := entriesOf(t, alpha, note.Checkpoint)

				liar := m.Corrupt("alpha.test")
				peers := []string{"beta.test", "gamma.test", "delta.test", "epsilon.test"}

				for i, peer := range peers {
					// The two ledgers differ in their last entry.
					shown := append(slices.Clip(entries), ledger.EntryOf(ledger.Command, []byte{byte(i / 2)}))
					text := noteOf(t, alpha, note.Origin, shown)
					prefix := "/log/" + note.Origin[strings.LastIndexByte(note.Origin, '/')+1:]

					liar.Show(peer, map[string]string{
						prefix + "/checkpoint": text,
						prefix + "/tile/entries/" + ledger.TilePath(0, len(shown)): bundleOf(shown),
						// What it says of another ledger is not signed by that one's domain.
						"/federation/v1/checkpoint": noteOf(t, alpha,
							strings.Replace(note.Origin, "alpha", "delta", 1), shown),
					})

					if cosigned {
						m.Eventually(30*time.Second, peer+" has cosigned it", func() error {
							if got := submitAs(t, m, peer, shown, text); got != http.StatusOK {
								return fmt.Errorf("it answers %d", got)
							}

							return nil
						})
					}
				}

				took := m.Eventually(rounds, "alpha.test is frozen", func() error {
					for _, peer := range peers {
						if err := frozenAt(t, m.Domain(peer).Nodes[0], "alpha.test"); err != nil {
							return err
						}
					}

					return nil
				})
				t.Logf("frozen by all after %v", took)
				must(t, frozenAt(t, apart))
			})
		})
	}
}

// frozenAt returns nil if a node has frozen exactly these peers.
func frozenAt(t *testing.T, node *mesh.Node, want ...string) error {
	t.Helper()

	peers, _, err := apiclient.NewDirect(node.URL(), node.HTTP("/ops/operator")).Operator().Peers(t.Context())
	if err != nil {
		return err
	}

	var frozen []string

	for _, peer := range peers {
		if peer.Agreed == string(directory.PeeringFrozen) {
			frozen = append(frozen, peer.Domain)
		}
	}

	if !slices.Equal(frozen, want) {
		return fmt.Errorf("%s has frozen %q", node.Name, frozen)
	}

	return nil
}

// cosignedLast returns the checkpoint of a log that a domain has cosigned last.
func cosignedLast(m *mesh.Mesh, by, origin string) (*checkpoint.Note, error) {
	sum := sha256.Sum256([]byte(origin))

	text, err := file(m.Domain(by).Nodes[0], "/witness/"+hex.EncodeToString(sum[:])+"/checkpoint")
	if err != nil {
		return nil, err
	}

	return checkpoint.Parse(text)
}

// showOtherRoot shows a witness a checkpoint of alpha.test's ledger that differs in its last entry, signed by its
// key, and returns the status of the answer.
func showOtherRoot(t *testing.T, m *mesh.Mesh, witness string, shown checkpoint.Checkpoint) int {
	t.Helper()

	node := m.Domain("alpha.test").Nodes[0]
	entries := entriesOf(t, node, shown)
	entries[len(entries)-1][1]++

	return submitAs(t, m, witness, entries, noteOf(t, node, shown.Origin, entries))
}

// noteOf returns a checkpoint of entries, signed by a node's key.
func noteOf(t *testing.T, node *mesh.Node, origin string, entries []ledger.Entry) string {
	t.Helper()

	pem := valueOf(os.ReadFile(filepath.Join(node.Data(), "signing.key")))

	key, ok := valueOf(trust.ParseKey(pem)).(ed25519.PrivateKey)
	if !ok {
		t.Fatal("the signing key is not Ed25519")
	}

	var tree ledger.Frontier
	for _, entry := range entries {
		tree.Append(entry)
	}

	return checkpoint.Sign(checkpoint.Checkpoint{Origin: origin, Size: tree.Size, Root: tree.Root()}, key)
}

// bundleOf returns entries as a bundle has them.
func bundleOf(entries []ledger.Entry) string {
	var data []byte
	for _, entry := range entries {
		data = append(append(data, 0, byte(len(entry))), entry[:]...)
	}

	return string(data)
}

// entriesOf returns the entries of a checkpoint of a node's ledger, which has less than a full bundle.
func entriesOf(t *testing.T, node *mesh.Node, shown checkpoint.Checkpoint) []ledger.Entry {
	t.Helper()

	epoch := shown.Origin[strings.LastIndexByte(shown.Origin, '/')+1:]

	return valueOf(ledger.ReadEntries([]byte(valueOf(file(node,
		"/log/"+epoch+"/tile/entries/"+ledger.TilePath(0, int(shown.Size)))))))
}

// submitAs submits a note of entries in the name of alpha.test to a witness, and returns the status of the answer.
func submitAs(t *testing.T, m *mesh.Mesh, witness string, entries []ledger.Entry, note string) int {
	t.Helper()

	log := valueOf(ledger.Open(t.TempDir()))
	defer func() { must(t, log.Close()) }()
	must(t, log.Reset(ledger.Tree{}))

	log.Append(entries...)

	shown := valueOf(checkpoint.Parse(note))
	body, old := &strings.Builder{}, uint64(0)

	if before, err := cosignedLast(m, witness, shown.Origin); err == nil {
		old = before.Size
	}

	fmt.Fprintf(body, "old %d\n", old)

	for _, h := range valueOf(log.Consistency(ledger.Tree{Size: shown.Size, Root: shown.Root}, old)) {
		fmt.Fprintln(body, base64.StdEncoding.EncodeToString(h[:]))
	}

	body.WriteString("\n" + note)

	to := m.Domain(witness).Nodes[0]

	return exchangeOf(t, to.HTTP(""), to.URL(), "POST", "/witness/add-checkpoint", body.String()).status
}

func valueOf[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}

	return value
}
