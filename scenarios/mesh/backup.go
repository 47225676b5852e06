package mesh

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// A Backup is one of a domain, with what was registered there when it was taken.
type Backup struct {
	Taken time.Time

	domain string
	file   []byte
	agents []*Agent
}

// Backup saves a domain's state while it runs, by its operator's command.
func (m *Mesh) Backup(name string) *Backup {
	m.T.Helper()
	b := &Backup{Taken: time.Now(), domain: name}
	m.mu.Lock()
	for _, a := range m.agents {
		if a.Domain == name && !a.Ended {
			b.agents = append(b.agents, a)
		}
	}
	m.mu.Unlock()
	var file bytes.Buffer
	ctx, cancel := m.request()
	defer cancel()
	m.must(m.client(m.living(name), operator).SaveSnapshot(ctx, &file))
	b.file = file.Bytes()
	m.Note("a backup of %s is taken", name)
	return b
}

// living returns the first node of a domain that runs.
func (m *Mesh) living(name string) *Node {
	m.T.Helper()
	for _, n := range m.Domain(name).Nodes {
		if n.Lives() {
			return n
		}
	}
	m.T.Fatalf("no node of %s runs", name)
	return nil
}

// Restore restores a backup at the domain that it is of, once; an error leaves open
// whether it was restored. Safe for concurrent use with what is not a Restore of the
// same domain.
func (m *Mesh) Restore(b *Backup, force bool) (*apiclient.Restored, error) {
	m.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done, _, err := m.client(m.living(b.domain), operator).RestoreSnapshot(ctx, bytes.NewReader(b.file), int64(len(b.file)), force, "a story")
	return done, m.noted(err, "%s is restored from its backup", b.domain)
}

// Overtaken says that the domain is at a backup again: what was registered after it
// is lost, and what was removed after it may be shown at home again, and nowhere else
// (rule P2).
func (m *Mesh) Overtaken(b *Backup) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := map[*Agent]bool{}
	for _, a := range b.agents {
		kept[a], a.restored = true, true
	}
	for _, a := range m.agents {
		if a.Domain == b.domain && !kept[a] {
			a.Ended = true
		}
	}
}

// Wipe takes the whole disk of a node that is dead; its SVID stays.
func (m *Mesh) Wipe(n *Node) {
	m.T.Helper()
	n.ending.Wait()
	m.Note("%s loses its disk", n.Name)
	m.must(os.RemoveAll(n.cfg.Data))
	m.must(os.Mkdir(n.cfg.Data, 0o700))
}

// Shows returns nil when a node shows these agents of a domain and no others.
func (m *Mesh) Shows(n *Node, domain string, agents ...*Agent) error {
	all, err := m.Lookup(n)
	if err != nil {
		return err
	}
	of := 0
	for _, r := range all {
		if r.Provenance.Authority == domain {
			of++
		}
	}
	for _, a := range agents {
		if _, ok := all[a.RID]; !ok {
			return fmt.Errorf("%s does not show %s", n.Name, a.Name)
		}
	}
	if of != len(agents) {
		return fmt.Errorf("%s shows %d agents of %s and not %d", n.Name, of, domain, len(agents))
	}
	return nil
}
