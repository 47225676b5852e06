package consensus

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// laterMember is the number of a member that no release has.
const laterMember = 4242

// grown returns a message with a member in each of its structures that no release
// knows.
func grown(message []byte) []byte {
	var v any
	if err := cbor.Unmarshal(message, &v); err != nil {
		panic(err)
	}

	return valueOf(state.Marshal(grow(v, true)))
}

// grow adds the member to v and to what is in it. What has another key than a number
// is a map and no structure; nor is it known of what is empty, but for the whole.
func grow(v any, whole bool) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = grow(v[i], false)
		}
	case map[any]any:
		structure := whole || len(v) > 0
		for key, value := range v {
			if _, number := key.(uint64); !number {
				structure = false
			}

			v[key] = grow(value, false)
		}

		if structure {
			v[uint64(laterMember)] = map[string]any{"of": []any{"a later release", 1}}
		}
	}

	return v
}

// wireTypes returns the names of the types with a method onWire, by the source of package
// source: each is a message between members.
func wireTypes(t *testing.T) map[string]bool {
	t.Helper()

	files, err := filepath.Glob("message/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}

	types := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}

		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must(t, err)

		for _, decl := range parsed.Decls {
			if method, is := decl.(*ast.FuncDecl); is && method.Recv != nil && method.Name.Name == "onWire" {
				types[method.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name] = true
			}
		}
	}

	return types
}

// Requirement: FORM-004
func TestEveryMessageIsReadWithMembersThatNobodyKnows(t *testing.T) {
	missing := wireTypes(t)
	if len(missing) < 15 {
		t.Fatalf("found only %d types of messages", len(missing))
	}

	for _, sample := range everyMessage() {
		want, is := sample.(message.Message)
		if !is {
			continue // a part of one
		}

		kind := reflect.TypeOf(sample).Elem()
		delete(missing, kind.Name())

		larger := grown(valueOf(state.Marshal(want)))
		if state.Unmarshal(larger, reflect.New(kind).Interface()) == nil {
			t.Errorf("%s: the log's decoder takes a member that nobody knows", kind)
		}

		back := reflect.New(kind).Interface().(message.Message)

		err := message.Unmarshal(larger, back)
		if m, is := back.(*message.Writes); is { // its requests stay as they came
			for i := range m.Requests {
				var request message.Request
				err = message.Unmarshal(m.Requests[i], &request)
				m.Requests[i] = valueOf(state.Marshal(&request))
			}
		}

		if err != nil || !reflect.DeepEqual(back, want) {
			t.Errorf("%s: read as %+v, want %+v (%v)", kind, back, want, err)
		}
	}

	for name := range missing {
		t.Errorf("there is no sample of the message %s", name)
	}
}

// Whatever members send each other has a member that the others don't know, and a
// domain does all that it does.
//
// Requirement: FORM-004
func TestADomainWhoseMessagesHaveGrown(t *testing.T) {
	inDomain(t, 3, func(c *Config) {
		c.sent = grown
		c.Aside = func(question []byte) []byte { return append([]byte("answer to "), question...) }
	}, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		s := d.nodes[other]

		out := d.register(other, "translator", 600)

		who := directory.Caller{Identity: ada}

		patched := directory.RefreshRequest{Caller: who, RID: out.RID, Patch: []byte(`{"description":"translates"}`)}
		_, err := s.Refresh(t.Context(), patched)
		must(t, err)

		many, err := s.RefreshMany(t.Context(), directory.RefreshBatch{Caller: who,
			Items: []directory.Renewal{{RID: out.RID}}})
		if err != nil || len(many.Each) != 1 || many.Each[0].Err != nil {
			t.Errorf("many refreshed: %+v, %v", many, err)
		}

		_, err = s.Register(t.Context(), put(t, bob, "translator", 600))
		problem(t, err, directory.NameTaken)

		if err := s.SetPeering(t.Context(), directory.Peering{Domain: beta, State: directory.PeeringActive,
			Addresses: []string{"https://b0.beta.test:8400"}}); err != nil {
			t.Error(err)
		}

		must(t, s.reader.Linearize(t.Context()))

		if answer, err := s.peers.AskLeader(t.Context(), []byte("it")); string(answer) != "answer to it" || err != nil {
			t.Errorf("the leader answers %q, %v", answer, err)
		}

		for _, p := range s.peers.Contacts() {
			if p.State == ContactSilent {
				t.Errorf("the leader has not heard %s", p.ID)
			}
		}

		if s.clocks.clockSaid.Load() == nil {
			t.Error("the leader has not said what time it is")
		}

		i := d.newcomer(nil)
		d.admit(other, i)
		d.eventuallyVoters(leader, 4, 0)
		d.ready()

		must(t, s.Transfer(t.Context(), d.members[i].ID))

		d.ready()

		var backup bytes.Buffer

		_, other = d.leader()
		must(t, d.nodes[other].restorer.Backup(t.Context(), &backup))

		if _, err := d.nodes[other].restorer.Restore(t.Context(), &backup, RestoreOptions{NewEpoch: true}); err != nil {
			t.Error(err)
		}

		if _, err := d.nodes[other].Remove(t.Context(),
			directory.RemoveRequest{Caller: who, RID: out.RID}); err != nil {
			t.Error(err)
		}

		d.ready()
		d.equalStates()
	})
}

// A kind of request that the leader doesn't know changes nothing and is refused.
func TestARequestOfALaterKind(t *testing.T) {
	d := newDomain(t, 1, nil)
	d.ready()
	raw := valueOf(state.Marshal(map[int]any{laterMember: map[int]any{1: "new"}}))

	request, err := d.nodes[0].terms.leader().requestFrom(d.members[0].ID, raw)
	must(t, err)

	_, err = d.nodes[0].terms.leader().write(t.Context(), request)
	problem(t, err, directory.BadRequest)

	if err == nil || !strings.Contains(fmt.Sprint(err), "unknown request") {
		t.Error(err)
	}
}

// A message of the largest size is read, and a longer one is refused, whatever it begins with.
func TestAMessageIsBounded(t *testing.T) {
	whole := valueOf(state.Marshal(&message.Aside{Text: make([]byte, message.MaxBody)}))
	whole = valueOf(state.Marshal(&message.Aside{Text: make([]byte, 2*message.MaxBody-len(whole))}))

	if err := readMessage(bytes.NewReader(whole), &message.Aside{}); err != nil || len(whole) != message.MaxBody {
		t.Errorf("%d bytes: %v", len(whole), err)
	}

	if err := readMessage(bytes.NewReader(append(whole, 0)), &message.Aside{}); err == nil {
		t.Errorf("%d bytes and one more are read", len(whole))
	}
}
