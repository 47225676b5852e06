package scenarios

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
	"github.com/roster-mesh/roster/trust"
)

// file returns a file that a node serves to anyone. Clients of a mesh follow no redirects by themselves.
func file(n *mesh.Node, path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL()+path, nil)
	if err != nil {
		return "", err
	}

	res, err := n.HTTP("").Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()

	if res.StatusCode == http.StatusTemporaryRedirect {
		return file(n, res.Header.Get("Location"))
	}

	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s at %s: %s: %s", path, n.Name, res.Status, body)
	}

	return string(body), err
}

// A judged is what a stranger finds at a node, by another implementation of the formats: the
// checkpoint, believed by the node's policy file, and all entries, compared with it.
type judged struct {
	prefix  string // of its files
	tree    tlog.Tree
	entries [][]byte
	policy  torchwood.Policy
}

// ofSigner returns a policy with the log line of the key alone that signed a note. C2SP tlog-policy is
// satisfied by any of the listed logs, and torchwood v0.9.0 by all together.
func ofSigner(policy, note string) []byte {
	var lines []string

	for line := range strings.Lines(policy) {
		if fields := strings.Fields(line); fields[0] == "log" {
			vkey := strings.SplitN(fields[1], "+", 3)

			id, err := hex.DecodeString(vkey[1])
			if signed := "— " + vkey[0] + " " + base64.StdEncoding.EncodeToString(id)[:5]; err != nil ||
				!strings.Contains(note, signed) {
				continue
			}
		}

		lines = append(lines, line)
	}

	return []byte(strings.Join(lines, ""))
}

func judgeLedger(n *mesh.Node) (found judged, err error) {
	return judgeLedgerAt(n, "/log/checkpoint") // a redirect leads to the log at hand
}

func judgeLedgerAt(n *mesh.Node, path string) (found judged, err error) {
	text, err := file(n, path)
	if err != nil {
		return found, err
	}

	origin, _, _ := strings.Cut(text, "\n")
	prefix := "/log/" + origin[strings.LastIndexByte(origin, '/')+1:]

	found.prefix = prefix

	policy, err := file(n, prefix+"/policy")
	if err != nil {
		return found, err
	}

	if found.policy, err = torchwood.ParsePolicy(ofSigner(policy, text)); err != nil {
		return found, fmt.Errorf("the policy of %s: %w\n%s", n.Name, err, policy)
	}

	c, _, err := torchwood.VerifyCheckpoint([]byte(text), found.policy)
	if err != nil {
		return found, fmt.Errorf("the checkpoint of %s: %w\n%s", n.Name, err, text)
	}

	found.tree = tlog.Tree{N: c.N, Hash: c.Hash}

	fetcher, err := torchwood.NewTileFetcher(n.URL()+prefix, torchwood.WithHTTPClient(n.HTTP("")))
	if err != nil {
		return found, err
	}

	client, err := torchwood.NewClient(fetcher)
	if err != nil {
		return found, err
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	for _, entry := range client.AllEntries(ctx, found.tree, 0) {
		found.entries = append(found.entries, bytes.Clone(entry))
	}

	if err := client.Err(); err != nil {
		return found, fmt.Errorf("the entries of %s: %w", n.Name, err)
	}

	if int64(len(found.entries)) != c.N {
		return found, fmt.Errorf("%s shows %d entries of %d", n.Name, len(found.entries), c.N)
	}

	return found, nil
}

// Whoever leads and whoever is killed, every member has the same ledger, and each ledger that a
// stranger has seen is the beginning of all later ones. A thousand are killed at night.
//
// Requirement: LOG-001, LOG-003, LOG-005, MESH-020
func TestEveryNodeShowsOneLedger(t *testing.T) {
	runStory(t, 2, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Nodes: 3, Seed: seed, Link: wan})
		domain, random := m.Domains[0], rand.New(rand.NewPCG(seed, 1))

		var longest judged

		look := func(n *mesh.Node) {
			t.Helper()

			var found judged
			m.Eventually(time.Minute, n.Name+" shows its ledger", func() (err error) {
				found, err = judgeLedger(n)
				return err
			})

			shared := min(len(found.entries), len(longest.entries))
			for i := range shared {
				if !bytes.Equal(found.entries[i], longest.entries[i]) {
					t.Fatalf("entry %d of %s is another than was seen before", i, n.Name)
				}
			}

			if len(found.entries) > len(longest.entries) {
				longest = found
			}
		}

		for cycle := range long(1000, directorytest.Sample(20, 5)) {
			m.Register(domain.Name, fmt.Sprint("agent-", cycle), 86400)

			victim := domain.Nodes[random.IntN(3)]
			if random.IntN(2) == 0 {
				victim = domain.Leader()
			}

			victim.Kill()

			for _, n := range domain.Nodes {
				if n.Lives() {
					look(n)
					break
				}
			}

			m.Register(domain.Name, fmt.Sprint("beside-", cycle), 86400)
			victim.Restart()
			m.Eventually(time.Minute, victim.Name+" is ready", victim.Ready)
		}

		m.Register(domain.Name, "last", 86400)

		for _, n := range domain.Nodes {
			m.Eventually(time.Minute, n.Name+" has all", func() error {
				found, err := judgeLedger(n)
				if err == nil && len(found.entries) < len(longest.entries) {
					err = errors.New("not yet")
				}

				return err
			})
			look(n)
		}
	})
}

// After a restore a new log begins, whose first entry is of the type of an epoch's start. The old one goes
// on being served as it was, and the history has what was stated in both.
//
// Requirement: LOG-019, LOG-012
func TestANewEpochBeginsANewLedger(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Nodes: directorytest.Sample(3, 1), Seed: seed, Link: wan})
		node := m.Domains[0].Nodes[0]
		kept := m.Register("alpha.test", "kept", 86400)
		backup := m.Backup("alpha.test")
		m.Register("alpha.test", "later", 86400)

		old, err := judgeLedger(node)
		must(t, err)

		restore(m, backup)
		m.Register("alpha.test", "kept", 86400)

		next, err := judgeLedger(node)
		must(t, err)

		if next.prefix == old.prefix || next.entries[0][0] != 5 {
			t.Errorf("the new log is at %s, and its first entry is %x", next.prefix, next.entries[0])
		}

		again, err := judgeLedgerAt(node, old.prefix+"/checkpoint")
		must(t, err)

		if len(again.entries) < len(old.entries) || !bytes.Equal(bytes.Join(again.entries[:len(old.entries)], nil),
			bytes.Join(old.entries, nil)) {
			t.Errorf("the old log has %d entries, and not the %d that it had", len(again.entries), len(old.entries))
		}

		past, err := file(node, "/ad/r/"+kept.RID+"/history")
		if err != nil || !strings.Contains(past, `"complete":true`) ||
			!strings.Contains(past, strings.TrimPrefix(old.prefix, "/log/")) ||
			!strings.Contains(past, strings.TrimPrefix(next.prefix, "/log/")) {
			t.Errorf("the history: %s, %v", past, err)
		}
	})
}

// judgeProof has another implementation judge the tlog-proof that a node gives, by the policy of its origin.
func judgeProof(n, origin *mesh.Node, rid, record string) error {
	found, err := judgeLedger(origin)
	if err != nil {
		return err
	}

	path := "/ad/r/" + rid
	if n.Domain != origin.Domain {
		path = "/ad/r/" + origin.Domain.Name + "/" + rid
	}

	proof, err := file(n, path+"/proof?format=tlog-proof")
	if err != nil {
		return err
	}

	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(record, ".")[1])
	if err != nil {
		return err
	}

	digest := sha256.Sum256(payload)

	leaf := append([]byte{1}, digest[:]...)
	if err := torchwood.VerifyProof(found.policy, tlog.RecordHash(leaf), []byte(proof)); err != nil {
		return fmt.Errorf("the proof of %s: %w\n%s", n.Name, err, proof)
	}

	leaf[5]++

	if torchwood.VerifyProof(found.policy, tlog.RecordHash(leaf), []byte(proof)) == nil {
		return errors.New("it proves another leaf, too")
	}

	return nil
}

// judgeBundle looks for the entry of a proof's bundle in the ledger of its origin.
func judgeBundle(origin *mesh.Node, proof []byte) error {
	var given trust.Proof
	if err := json.Unmarshal(proof, &given); err != nil {
		return err
	}

	found, err := judgeLedger(origin)
	if err != nil {
		return err
	}

	digest := sha256.Sum256(given.Bundle)
	if leaf := append([]byte{4}, digest[:]...); !slices.ContainsFunc(found.entries, func(e []byte) bool {
		return bytes.Equal(e, leaf)
	}) {
		return fmt.Errorf("the ledger has no entry of the bundle %s", given.Bundle)
	}

	return nil
}

// A peer says that a registration is logged once it has compared its origin's ledger with what the
// origin signed, and proves it to others without the origin.
//
// Requirement: LOG-010, LOG-011, LOG-013
func TestAPeerProvesInclusion(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 1, Seed: seed, Link: wan})
		alpha, beta := m.Domain("alpha.test"), m.Domain("beta.test").Nodes[0]
		a := m.Register("alpha.test", "ada", 3600)

		var proof []byte

		logged := func(n *mesh.Node) error {
			var err error
			if proof, err = m.Proof(n, a); err != nil {
				return err
			}

			report, err := trust.Verify(proof, trust.VerifyOptions{Bundle: alpha.Bundle()})
			if err == nil && !report.Logged {
				err = errors.New("not logged")
			}

			return err
		}

		m.Eventually(10*time.Second, "it is logged at home", func() error { return logged(alpha.Nodes[0]) })
		m.Eventually(15*time.Second, "it is logged at beta", func() error { return logged(beta) })

		if err := judgeBundle(alpha.Nodes[0], proof); err != nil {
			t.Error(err)
		}

		m.Eventually(time.Minute, "the head of the audit log is in the ledger", func() error {
			found, err := judgeLedger(alpha.Nodes[0])
			if err == nil && !slices.ContainsFunc(found.entries, func(e []byte) bool { return e[0] == 7 }) {
				err = errors.New("no audit head")
			}

			return err
		})

		body, err := file(beta, "/ad/r/alpha.test/"+a.RID)
		if err != nil || !strings.Contains(body, `"logged":true`) ||
			!strings.Contains(body, `"log":{"origin":"alpha.test/roster/`) {
			t.Errorf("beta shows %s, %v", body, err)
		}

		m.Eventually(time.Minute, "beta shows that it is witnessed", func() error {
			body, err := file(beta, "/ad/r/alpha.test/"+a.RID)
			if err == nil && !strings.Contains(body, `"witnessed":true`) {
				err = errors.New("not witnessed")
			}

			return err
		})

		// Ranked queries judge it by the same ledger.
		found := exchangeOf(t, beta.HTTP("/client/reader"), beta.URL(), http.MethodPost, "/discovery/query",
			`{"query":"ada","constraints":{"min_verification":"witnessed"}}`)
		if !strings.Contains(string(found.body), a.RID) {
			t.Errorf("a query for witnessed agents at beta: %d %s", found.status, found.body)
		}

		record, err := file(beta, "/ad/r/alpha.test/"+a.RID+"/record")
		must(t, err)

		for _, n := range []*mesh.Node{alpha.Nodes[0], beta} {
			m.Eventually(15*time.Second, n.Name+" has a proof for others", func() error {
				return judgeProof(n, alpha.Nodes[0], a.RID, record)
			})
		}

		alpha.Kill()

		if err := logged(beta); err != nil {
			t.Errorf("without its origin: %v", err)
		}
	})
}
