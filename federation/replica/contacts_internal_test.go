package replica

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The nodes at the peering's addresses are asked in turn, then those that its nodes stated. A failure turns to the
// next node once, for one stream; a late report of a node that isn't asked any more changes nothing.
//
// Requirement: MESH-015
func TestTheNodesOfAnOriginAreAskedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := New(directorytest.Alpha, index.New(), Deps{Cfg: &Config{Domain: directorytest.Beta}})
		ct, mesh, private := &origin.Contacts, &origin.Mesh, &origin.Private
		at := func(base string) protocol.Node { return protocol.Node{Domain: directorytest.Alpha, Base: base} }
		asks := func(when string, feed *Feed, want string) {
			t.Helper()

			if node, ok := ct.Node(feed); !ok || node != at(want) {
				t.Errorf("%s: %v is asked, want %s", when, node, want)
			}
		}

		if node, ok := ct.Node(mesh); ok || len(ct.Nodes()) > 0 || ct.Lists(at("a")) {
			t.Errorf("without an address: %v, of %v", node, ct.Nodes())
		}

		origin.Peering.Store(&directory.Peering{Addresses: []string{"a", "b"}})

		node := func(n string) spiffeid.ID {
			return spiffeid.RequireFromString("spiffe://alpha.test/roster/node/" + n)
		}

		ct.State(node("1"), "b") // which the peering names
		ct.State(node("2"), "x")
		ct.State(node("3"), "x")
		ct.State(node("4"), "y")
		ct.State(node("4"), "c") // it has moved

		if stated := ct.Stated(); !slices.Equal(stated, []string{"x", "c"}) {
			t.Errorf("stated are %v", stated)
		}

		for base, want := range map[string]bool{"a": true, "b": true, "x": true, "c": true, "y": false} {
			if ct.Lists(at(base)) != want {
				t.Errorf("%s is listed: %t", base, !want)
			}
		}

		began := time.Now()

		time.Sleep(time.Second)
		asks("at first", mesh, "a")
		ct.failed(mesh.Aud, at("b"))
		asks("after a late report", mesh, "a")
		ct.failed(mesh.Aud, at("a"))
		asks("after a failure", mesh, "b")
		asks("after a failure of the other stream", private, "a")

		if !ct.failedSince(mesh.Aud, began) || ct.failedSince(private.Aud, began) ||
			ct.failedSince(mesh.Aud, time.Now()) {
			t.Error("a failure is of one stream and of its time")
		}

		if all := ct.Nodes(); !slices.Equal(all, []protocol.Node{at("b"), at("x"), at("c"), at("a")}) {
			t.Errorf("the nodes are %v", all)
		}

		ct.Prefer(at("y"))
		asks("an unknown one is preferred", mesh, "b")
		ct.Prefer(at("c"))
		asks("one is preferred", mesh, "c")
		asks("one is preferred", private, "c")

		if !ct.failedSince(mesh.Aud, began) {
			t.Error("a failure is forgotten")
		}

		ct.failed(mesh.Aud, at("c"))
		asks("after the last one", mesh, "a")

		first, _ := ct.HeadNode()
		if second, _ := ct.HeadNode(); first == second {
			t.Errorf("the head is asked of %v twice", first)
		}

		if giver, known := ct.LastHeadFrom(); known || ct.HeadSince(began) {
			t.Errorf("before any head: %v", giver)
		}

		ct.HeadFrom(at("b"))

		if giver, known := ct.LastHeadFrom(); !known || giver != at("b") || !ct.HeadSince(began) ||
			ct.HeadSince(time.Now()) {
			t.Errorf("the head came from %v", giver)
		}

		for n := range byte(2 * maxStated) {
			ct.State(node(string('a'+rune(n))), string('A'+rune(n)))
		}

		if stated := ct.Stated(); len(stated) != maxStated || stated[maxStated-1] != "P" {
			t.Errorf("stated are %v", stated)
		}
	})
}

// Pushed messages cause a pull of keys a second at most. One that is put off is made up for once.
func TestPullsOfKeysArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := New(directorytest.Alpha, index.New(), Deps{Cfg: &Config{Domain: directorytest.Beta}})
		ct := &origin.Contacts

		for _, c := range []struct {
			pause      time.Duration
			pushed     bool
			may, later bool
		}{
			{time.Minute, true, true, false},
			{0, true, false, true},
			{0, false, true, false}, // what isn't pushed isn't held back
			{KeysEvery - 1, true, false, true},
			{1, true, true, false},
		} {
			time.Sleep(c.pause)

			if may := ct.MayRefresh(Sender{Pushed: c.pushed}); may != c.may {
				t.Errorf("%+v: %t", c, may)
			}

			if put, again := ct.PutOff(), ct.PutOff(); put != c.later || again {
				t.Errorf("%+v: it is put off: %t, and %t", c, put, again)
			}
		}
	})
}
