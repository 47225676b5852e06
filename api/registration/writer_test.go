package registration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/problem"
)

var errNoLeader = directory.Refuse(directory.Unavailable, "there is no leader")

// A proposal is read from all parts of a request, and each that is wrong is refused before the surface reads its own.
//
// Requirement: AD-002, AD-010, AD-079
func TestAProposalIsReadFromItsRequest(t *testing.T) {
	n := newNode()
	bob := "owner=spiffe://alpha.test/agent/bob"

	for _, x := range []struct {
		query  string
		header []string
		want   string
	}{
		{"", nil, " 7 mesh keep=true [] false false"},
		{"lt=90&visibility=domain", nil, " 90 domain keep=false [] false false"},
		{bob, nil, "spiffe://alpha.test/agent/bob 7 mesh keep=true [] false false"},
		{"owner=spiffe://alpha.test/agent/ada", nil, " 7 mesh keep=true [] false false"}, // the caller
		{"", []string{"If-Match", `"7.aa"`}, " 7 mesh keep=true [7] false false"},
		{"", []string{"If-Match", "*"}, " 7 mesh keep=true [] true false"},
		{"", []string{"If-None-Match", "*"}, " 7 mesh keep=true [] false true"},
		{"lt=x", nil, "bad-lifetime"},
		{"owner=x", nil, "bad-request"},
		{bob + "&" + bob, nil, "bad-query"},
		{"visibility=x", nil, "bad-request"},
		{"visibility=mesh&visibility=mesh", nil, "bad-query"},
		{"", []string{"If-None-Match", `"7.aa"`}, "bad-request"},
		{"", []string{"Content-Encoding", "gzip"}, "unsupported-media-type"},
	} {
		read := false
		call := callBy(directorytest.Ada, Name{}, x.query, x.header...)
		p, err := n.Parse(httptest.NewRecorder(), call, Form{Lifetime: 7,
			Read: func(_ *request.Call, _ []byte, _ *directory.RegisterRequest) error {
				read = true
				return nil
			}})

		got := fmt.Sprintf("%s %d %s keep=%t %v %t %t", p.Owner, p.Lifetime, p.Visibility, p.KeepVisibility, p.IfMatch,
			p.Present, p.Absent)
		if err != nil {
			got = string(directory.ProblemOf(err))
		}

		if got != x.want || read != (err == nil) {
			t.Errorf("%q %q: %s (%v), want %s", x.query, x.header, got, err, x.want)
		}
	}
}

// A change that an older policy permitted is asked about again, by the newer one, so many times and no more. What is
// audited of one attempt is not what becomes of the next.
//
// Requirement: TRUST-013
func TestAChangeThatIsOvertakenIsJudgedAgain(t *testing.T) {
	overtaken := directory.Refuse(directory.Overtaken, "the domain has had another policy since this was permitted")

	for name, x := range map[string]struct {
		errs        []error
		catchingUp  error
		want        directory.Problem
		tries, asks int
	}{
		"never":     {nil, nil, "", 1, 0},
		"once":      {[]error{overtaken}, nil, "", 2, 1},
		"as may be": {slices.Repeat([]error{overtaken}, maxProposals-1), nil, "", maxProposals, maxProposals - 1},
		"again and again": {
			slices.Repeat([]error{overtaken}, 99), nil, directory.Overtaken, maxProposals, maxProposals - 1,
		},
		"without leader": {[]error{overtaken}, errNoLeader, directory.Unavailable, 1, 1},
		"refused":        {[]error{errNoLeader}, nil, directory.Unavailable, 1, 0},
	} {
		n := newNode()
		n.leader.errs = x.errs
		n.leader.caughtUp = func() error {
			n.version++
			return x.catchingUp
		}

		call := callBy(directorytest.Ada, Name{}, "")
		call.Audited = true

		_, err := n.Register(call, proposalOf(t, "one"))
		if refusal(err) != x.want || len(n.leader.registers) != x.tries ||
			n.leader.linearizing != x.asks || call.Audited != (x.asks == 0) {
			t.Errorf("%s: %v after %d tries, %d times caught up", name, err, len(n.leader.registers),
				n.leader.linearizing)
		}

		for i, asked := range n.leader.registers {
			if *asked.Caller.PolicyVersion != uint64(i) {
				t.Errorf("%s: try %d was judged by version %d", name, i, *asked.Caller.PolicyVersion)
			}
		}
	}
}

func proposalOf(t *testing.T, agent string) directory.RegisterRequest {
	t.Helper()

	return directory.RegisterRequest{
		Agent: agent, Lifetime: 600, Document: directorytest.Document(t, directory.KindAD, `{"base":"https://a.test"}`),
	}
}

// Policy is asked about the visibility that a registration will have, and refuses before the leader is asked. Domains
// in it that are no active peers are named to those who may register alone.
//
// Requirement: XU-003, TRUST-013
func TestPolicyJudgesTheVisibilityToCome(t *testing.T) {
	wide, err := directory.ParseVisibility("peers:beta.test,gamma.test,delta.test") // more than policy permits
	directorytest.Must(t, err)

	narrow, err := directory.ParseVisibility("peers:beta.test,gamma.test")
	directorytest.Must(t, err)

	mine, others := entry(t, directorytest.Alpha, 1, "mine"), entry(t, directorytest.Alpha, 2, "others")
	mine.Visibility, others.Visibility, others.Owner = wide, wide, directorytest.Bob

	for _, x := range []struct {
		agent      string
		visibility directory.Visibility
		keep       bool
		refused    bool
		ignored    string
	}{
		{"mine", directory.Visibility{}, true, true, ""},
		{"others", directory.Visibility{}, true, false, ""}, // who owns it decides the leader
		{"new", wide, false, true, ""},
		{"new", narrow, false, false, "peers:gamma.test"},
		{"new", narrow, true, false, ""},
		{"reserved", directory.Visibility{}, false, true, ""},
	} {
		n := newNode(mine, others)
		call := callBy(directorytest.Ada, Name{}, "")
		proposal := proposalOf(t, x.agent)
		proposal.Visibility, proposal.KeepVisibility = x.visibility, x.keep

		_, err := n.Register(call, proposal)
		if (directory.ProblemOf(err) == directory.Forbidden) != x.refused ||
			(len(n.leader.registers) == 0) != x.refused || call.AnswerHeader.Get(wire.HeaderIgnored) != x.ignored {
			t.Errorf("%s, %s, keep %t: %v, %v", x.agent, x.visibility, x.keep, err, call.AnswerHeader)
		}
	}

	// What is no registration is not proposed, and what is misspelt is named.
	n := newNode()
	call := callBy(directorytest.Ada, Name{}, "")
	bad, misspelt := proposalOf(t, "one"), proposalOf(t, "one")
	bad.Document = directorytest.Document(t, directory.KindAD, `{"base":1}`)
	misspelt.Document = directorytest.Document(t, directory.KindAD, `{"base":"https://a.test","protocol":["mcp"]}`)

	if _, err := n.Register(call, bad); err == nil || len(n.leader.registers) > 0 {
		t.Errorf("a document without a base: %v", err)
	}

	if _, err := n.Register(call, misspelt); err != nil || call.AnswerHeader.Get(wire.HeaderIgnored) == "" {
		t.Errorf("a misspelt member: %v, %v", err, call.AnswerHeader)
	}
}

// A write names what its caller may change. It is refused for others' registrations that it sees, and one that it
// doesn't see is none. This node learns all names before it says that there is none, once.
//
// Requirement: AD-002, AD-021
func TestAWriteFindsWhatItMayChange(t *testing.T) {
	own, secret := entry(t, directorytest.Alpha, 1, "own"), entry(t, directorytest.Alpha, 2, "secret")
	foreign := entry(t, directorytest.Beta, 3, "foreign")

	for _, x := range []struct {
		who    directory.Identity
		name   Name
		want   string // "own", "leader" or a problem
		asking int
	}{
		{directorytest.Ada, Name{ID: "own"}, "held", 0},
		{tool, Name{ID: own.RID.String()}, "held", 0},
		{directorytest.Ada, Name{Origin: "alpha.test", ID: own.RID.String()}, "held", 0},
		{directorytest.Bob, Name{ID: "own"}, "forbidden", 0},
		{directorytest.Ada, Name{ID: "foreign"}, "foreign-registration", 0},
		{directorytest.Ada, Name{Origin: "beta.test", ID: foreign.RID.String()}, "foreign-registration", 0},
		{directorytest.Bob, Name{ID: "secret"}, "not-found", 1},
		{directorytest.Bob, Name{ID: "nobody"}, "not-found", 1},
		{directorytest.Bob, Name{ID: secret.RID.String()}, "leader", 0},
		{directorytest.Bob, Name{ID: directorytest.RID(9).String()}, "leader", 0},
		{directorytest.Bob, Name{Origin: "alpha.test", ID: directorytest.RID(9).String()}, "not-found", 0},
		{directorytest.Ada, Name{ID: "late"}, "held", 1},
	} {
		n := newNode(own, secret, foreign)
		n.leader.caughtUp = func() error {
			n.put(entry(t, directorytest.Alpha, 4, "late"))
			return nil
		}

		targets := n.Targets(callBy(x.who, x.name, ""))

		for range 2 {
			target, err := targets.Find(x.name)

			got := "held"
			if err != nil {
				got = string(directory.ProblemOf(err))
			} else if target.Entry == nil {
				got = "leader"
			}

			if got != x.want || n.leader.linearizing != x.asking || target.ID != x.name.ID && err == nil {
				t.Errorf("%s writes %+v: %s, %v, %d times caught up", x.who, x.name, got, err, n.leader.linearizing)
			}
		}
	}

	n := newNode()
	n.leader.caughtUp = func() error { return errNoLeader }

	_, err := n.Targets(callBy(directorytest.Ada, Name{}, "")).Find(Name{ID: "nobody"})
	directorytest.WantProblem(t, err, directory.Unavailable)

	// The refusal of a copy says where the original is, if that is known.
	for origin, want := range map[*directory.Entry]string{
		foreign: "https://beta.test/ad/r/", entry(t, directorytest.Gamma, 5, "far"): "",
	} {
		err := n.Foreign(origin)
		detail := err.Error()

		members := map[bool]int{true: 2, false: 1}[want != ""]
		if len(problem.Explain(err).Members) != members || !strings.Contains(detail, origin.Origin.Name()) ||
			strings.Contains(detail, "original") != (want != "") || !strings.Contains(detail, want) {
			t.Errorf("of %s: %s", origin.Origin, detail)
		}
	}
}

// A refresh is refused if policy forbids its owner the registration; the leader decides about one that this node
// still doesn't have once it has caught up. A refusal of that tells no hidden registration from an absent one.
//
// Requirement: AD-070, AD-002
func TestARefreshIsForWhatMayBeRenewed(t *testing.T) {
	n := newNode(entry(t, directorytest.Alpha, 1, "own"), entry(t, directorytest.Alpha, 2, "reserved"))
	late := entry(t, directorytest.Alpha, 3, "reserved-too")
	n.leader.caughtUp = func() error {
		n.put(late)
		return nil
	}

	for _, x := range []struct {
		who    directory.Identity
		id     string
		want   directory.Problem
		here   bool
		asking int
	}{
		{directorytest.Ada, "own", "", true, 0},
		{directorytest.Bob, "own", directory.Forbidden, false, 0},
		{directorytest.Ada, "reserved", directory.Forbidden, true, 0},
		{directorytest.Ada, late.RID.String(), directory.Forbidden, true, 1},
		{directorytest.Ada, directorytest.RID(9).String(), "", false, 2},
	} {
		target, err := n.Targets(callBy(x.who, Name{}, "")).Renewable(Name{ID: x.id})
		if refusal(err) != x.want || (target.Entry != nil) != x.here || n.leader.linearizing != x.asking {
			t.Errorf("%s: %+v, %v, %d times caught up", x.id, target, err, n.leader.linearizing)
		}

		if err != nil {
			continue
		}

		for _, refusal := range []directory.Problem{directory.Forbidden, directory.NotFound, directory.Unavailable} {
			want := refusal
			if !x.here && refusal == directory.Forbidden {
				want = directory.NotFound
			}

			hidden := target.Hide(directory.Refuse(refusal, "no"))
			if directory.ProblemOf(hidden) != want || want == directory.NotFound && !x.here &&
				hidden.Error() != NotFoundID(x.id).Error() {
				t.Errorf("%s: a leader's %s is told as %v", x.id, refusal, hidden)
			}
		}
	}

	n.leader.caughtUp = func() error { return errNoLeader }
	_, err := n.Targets(callBy(directorytest.Ada, Name{}, "")).Renewable(Name{ID: directorytest.RID(9).String()})
	directorytest.WantProblem(t, err, directory.Unavailable)

	refresh, err := n.ParseRefresh(callBy(directorytest.Ada, Name{}, "lt=90", "If-Match", `"7.aa"`))
	if err != nil || refresh.Lifetime != 90 || !slices.Equal(refresh.IfMatch, []uint64{7}) {
		t.Errorf("read is %+v, %v", refresh, err)
	}

	for query, header := range map[string]string{"lt=x": "*", "": `"7.aa"`} {
		if _, err := n.ParseRefresh(callBy(directorytest.Ada, Name{}, query, "If-None-Match", header)); err == nil {
			t.Errorf("%q, If-None-Match %s is a refresh", query, header)
		}
	}
}

// A removal is asked of the leader for the rid that a name has here, under the request's condition.
//
// Requirement: AD-002, AD-079
func TestARemovalIsOfWhatItsCallerMayChange(t *testing.T) {
	own := entry(t, directorytest.Alpha, 1, "own")
	overtaken := directory.Refuse(directory.Overtaken, "again")

	for _, x := range []struct {
		who    directory.Identity
		id     string
		header []string
		errs   []error
		want   directory.Problem
		asked  int
	}{
		{directorytest.Ada, "own", []string{"If-Match", `"7.aa"`}, nil, "", 1},
		{directorytest.Ada, "own", nil, []error{overtaken}, "", 2},
		{directorytest.Ada, "own", nil, []error{errNoLeader}, directory.Unavailable, 1},
		{directorytest.Bob, "own", nil, nil, directory.Forbidden, 0},
		{directorytest.Bob, directorytest.RID(9).String(), nil,
			[]error{directory.Refuse(directory.Forbidden, "no")}, directory.NotFound, 1},
		{directorytest.Ada, "own", []string{"If-None-Match", `"7.aa"`}, nil, directory.BadRequest, 0},
		{directorytest.Ada, "own", []string{"If-None-Match", "*"}, nil, "", 1},
	} {
		n := newNode(own)
		n.leader.errs = x.errs
		n.leader.outcome = directory.Outcome{RID: own.RID, Position: directory.Position{Epoch: 1, Revision: 9}}
		w := httptest.NewRecorder()

		err := n.Remove(w, callBy(x.who, Name{ID: x.id}, "", x.header...))
		if refusal(err) != x.want || len(n.leader.removes) != x.asked {
			t.Errorf("%s removes %s: %v, asked %d times", x.who, x.id, err, len(n.leader.removes))
		}

		if err == nil && (w.Code != http.StatusNoContent || w.Header().Get("Roster-Index") != "alpha.test=1.9") {
			t.Errorf("answered %d %v", w.Code, w.Header())
		}

		for _, asked := range n.leader.removes {
			if condition := x.header != nil; asked.Caller.Identity != x.who || (asked.IfMatch != nil) != condition ||
				x.id == "own" && asked.RID != own.RID {
				t.Errorf("asked for %+v", asked)
			}
		}
	}
}

// A write is answered with the registration as it is now, at the one path that all surfaces name; one that was removed
// meanwhile has no body.
//
// Requirement: AD-053, AD-055
func TestAWriteIsAnsweredWithTheRegistration(t *testing.T) {
	own := entry(t, directorytest.Alpha, 1, "own")
	own.Visibility = directory.Visibility{Mesh: true}
	n := newNode(own)
	path := "/ad/r/" + own.RID.String()

	for _, created := range []bool{true, false} {
		for _, here := range []bool{true, false} {
			w := httptest.NewRecorder()
			outcome := directory.Outcome{
				RID: own.RID, Created: created, Position: directory.Position{Epoch: 1, Revision: 9},
			}

			if !here {
				outcome.RID = directorytest.RID(9)
			}

			err := n.Answer(w, callBy(directorytest.Ada, Name{}, ""), n.Reader.Render.AIDIP(), outcome)
			status := map[bool]int{true: http.StatusCreated, false: http.StatusOK}[created]

			if err != nil || w.Code != status || w.Header().Get("Roster-Index") != "alpha.test=1.9" ||
				!strings.HasPrefix(w.Header().Get("Location"), "/ad/r/") || w.Header().Get("Cache-Control") == "" {
				t.Errorf("created %t: %v, %d %v", created, err, w.Code, w.Header())
			}

			body, _ := io.ReadAll(w.Body)
			if (len(body) > 0) != here || (w.Header().Get("ETag") != "") != here ||
				(w.Header().Get("Sunset") != "") != here || (w.Header().Get(wire.HeaderVisibility) == "mesh") != here {
				t.Errorf("here %t: %v %s", here, w.Header(), body)
			}

			if here && (w.Header().Get("Location") != path ||
				w.Header().Get("Content-Location") != "/agents/"+own.RID.String()) {
				t.Errorf("at %v", w.Header())
			}
		}
	}

	if got := string(AppendGranted(nil, directory.Outcome{Granted: 60})); got != "{\"lt\":60}\n" {
		t.Errorf("granted is %s", got)
	}
}

// PUT replaces what its caller may change, and registers a name that none has. A rid that this node doesn't have is for
// the leader to judge, who is asked for a refresh that can't succeed.
//
// Requirement: AI-021
func TestWhatAPUTReplaces(t *testing.T) {
	rid := directorytest.RID(9).String()
	unmet := directory.Refuse(directory.PreconditionFailed, "no")

	for _, x := range []struct {
		who    directory.Identity
		id     string
		err    error // of the leader
		want   directory.Problem
		name   string
		exists bool
	}{
		{directorytest.Ada, "own", nil, "", "own", true},
		{directorytest.Ada, directorytest.RID(1).String(), nil, "", "own", true},
		{directorytest.Bob, "own", nil, directory.Forbidden, "", false},
		{directorytest.Ada, "cafe\u0301", nil, "", "café", false},
		{directorytest.Ada, rid, unmet, directory.Unavailable, "", false},
		{directorytest.Ada, rid, errNoLeader, directory.Unavailable, "", false},
		{directorytest.Ada, rid, directory.Refuse(directory.Forbidden, "no"), directory.NotFound, "", false},
	} {
		n := newNode(entry(t, directorytest.Alpha, 1, "own"))
		n.leader.errs = []error{x.err}

		name, exists, err := n.Replaced(callBy(x.who, Name{ID: x.id}, ""))
		if name != x.name || exists != x.exists || refusal(err) != x.want {
			t.Errorf("%s puts %s: %q, %t, %v", x.who, x.id, name, exists, err)
		}

		for _, asked := range n.leader.refreshes {
			if asked.RID != directorytest.RID(9) || !slices.Equal(asked.IfMatch, []uint64{request.NoRevision}) {
				t.Errorf("the leader is asked for %+v", asked)
			}
		}

		if (x.id == rid) != (len(n.leader.refreshes) == 1) {
			t.Errorf("%s: the leader is asked %d times", x.id, len(n.leader.refreshes))
		}
	}

	n := newNode()
	if err := n.AskLeader(callBy(directorytest.Ada, Name{ID: "no-rid"}, "")); directory.ProblemOf(err) !=
		directory.NotFound || len(n.leader.refreshes) > 0 || errors.Is(err, unmet) {
		t.Errorf("of a name: %v", err)
	}
}
