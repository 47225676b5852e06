package scenarios

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A foreignLog is a log that shares no code with the project: trees and notes of x/mod, texts of torchwood.
type foreignLog struct {
	origin string
	signer note.Signer
	hashes []tlog.Hash // by stored index
	size   int64
}

func newForeignLog(t *testing.T, origin string) (log *foreignLog, vkey string) {
	t.Helper()

	skey, vkey, err := note.GenerateKey(rand.Reader, origin)
	must(t, err)

	signer, err := note.NewSigner(skey)
	must(t, err)

	return &foreignLog{origin: origin, signer: signer}, vkey
}

// ReadHashes implements tlog.HashReader.
func (l *foreignLog) ReadHashes(indexes []int64) (hashes []tlog.Hash, err error) {
	for _, i := range indexes {
		hashes = append(hashes, l.hashes[i])
	}

	return hashes, nil
}

// grow appends entries of a branch up to a size.
func (l *foreignLog) grow(size int64, branch string) {
	for ; l.size < size; l.size++ {
		l.hashes = append(l.hashes, valueOf(tlog.StoredHashes(l.size, fmt.Append(nil, branch, l.size), l))...)
	}
}

// note returns the checkpoint of a size, signed by a signer.
func (l *foreignLog) note(size int64, signer note.Signer) string {
	c := torchwood.Checkpoint{Origin: l.origin, Tree: tlog.Tree{N: size, Hash: valueOf(tlog.TreeHash(size, l))}}
	return string(valueOf(note.Sign(&note.Note{Text: c.String()}, signer)))
}

// submission is the body of add-checkpoint behind a size.
func (l *foreignLog) submission(old, size int64) string {
	body := fmt.Sprintf("old %d\n", old)

	if old > 0 && old < size {
		for _, hash := range valueOf(tlog.ProveTree(size, old, l)) {
			body += base64.StdEncoding.EncodeToString(hash[:]) + "\n"
		}
	}

	return body + "\n" + l.note(size, l.signer)
}

// servedPolicy returns the policy of a node's log.
func servedPolicy(n *mesh.Node) (string, error) {
	text, err := file(n, "/log/checkpoint")
	if err != nil {
		return "", err
	}

	origin, _, _ := strings.Cut(text, "\n")

	return file(n, "/log/"+origin[strings.LastIndexByte(origin, '/')+1:]+"/policy")
}

// A log of others is cosigned by a domain of three nodes, whichever is asked, with the six statuses of C2SP
// tlog-witness; torchwood verifies the cosignature by the policy file in which a peer names the witness.
//
// Requirement: LOG-007, LOG-008, LOG-009
func TestAForeignLogIsCosigned(t *testing.T) {
	log, vkey := newForeignLog(t, "log.example/2026")
	stranger, _ := newForeignLog(t, "stranger.example/1")
	forger, _ := newForeignLog(t, log.origin)
	fork := &foreignLog{origin: log.origin, signer: log.signer}

	log.grow(300, "")
	stranger.grow(9, "")
	forger.grow(9, "")
	fork.grow(300, "fork")

	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 3, Seed: seed, Link: wan, Configure: func(c *config.Config) {
			c.Witness.Logs = []config.OutsideLog{{VKey: vkey}}
		}})
		nodes := m.Domain("alpha.test").Nodes

		last := ""

		for i, step := range []struct {
			name, body string
			status     int
			answer     string
		}{
			{"no submission", "hello", 400, ""},
			{"an old size above the size", strings.Replace(log.submission(9, 9), "old 9", "old 10", 1), 400, ""},
			{"an unknown log", stranger.submission(0, 9), 404, ""},
			{"another key", forger.submission(0, 9), 403, ""},
			{"a size that was not cosigned", log.submission(5, 9), 409, "0\n"},
			{"the first", log.submission(0, 12), 200, ""},
			{"the first again, at another node", log.submission(0, 12), 409, "12\n"},
			{"a later one", log.submission(12, 300), 200, ""},
			{"a fork of the same size", fork.submission(300, 300), 422, ""},
			{"a proof of another tree", strings.Replace(fork.submission(12, 300), "old 12", "old 300", 1), 422, ""},
		} {
			if last != "" && step.status == http.StatusOK {
				m.Sleep(11 * time.Second) // between two checkpoints of one log
			}

			n := nodes[i%3]

			got := exchangeOf(t, n.HTTP(""), n.URL(), "POST", "/witness/add-checkpoint", step.body)
			if got.status != step.status || step.answer != "" && string(got.body) != step.answer {
				t.Errorf("%s: got %d %s, want %d %s", step.name, got.status, got.body, step.status, step.answer)
			}

			if got.status == http.StatusOK {
				last = string(got.body)
			}
		}

		m.Eventually(time.Minute, "beta.test names its witnesses", func() error {
			policy, err := servedPolicy(m.Domain("beta.test").Nodes[0])
			if err != nil {
				return err
			}

			// The witnesses of the policy, and the foreign log in place of beta.test's.
			text := "log " + vkey + "\n"

			for line := range strings.Lines(policy) {
				if !strings.HasPrefix(line, "log ") {
					text += line
				}
			}

			believed, err := torchwood.ParsePolicy([]byte(text))
			if err != nil {
				return err
			}

			c, _, err := torchwood.VerifyCheckpoint([]byte(log.note(300, log.signer)+last), believed)
			if err == nil && c.N != 300 {
				err = errors.New("another checkpoint")
			}

			return err
		})
	})
}
