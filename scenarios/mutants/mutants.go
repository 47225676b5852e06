// Package mutants plants bugs that tests once missed, and checks that a test catches each.
//
// A Mutant replaces one piece of source by a wrong one. The tests of this package check
// that each still applies and that its test exists. With MUTANTS=1 in the environment they
// also run that test on the source with the bug, by go test -overlay, and expect that it
// fails: some minutes, so continuous integration leaves it to make nightly.
package mutants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// A Mutant is one bug.
type Mutant struct {
	Name    string // what the bug does
	File    string // relative to the module
	Old     string // source that stands once in File
	New     string // source in its place
	Package string // of the test, relative to the module
	Test    string // the test function that must fail
}

// apply returns the source of the mutant's file with the bug.
func (m *Mutant) apply(module string) ([]byte, error) {
	source, err := os.ReadFile(filepath.Join(module, m.File))
	if err != nil {
		return nil, err
	}

	if n := bytes.Count(source, []byte(m.Old)); n != 1 {
		return nil, fmt.Errorf("%s has the source to replace %d times, want once: %s", m.File, n, m.Old)
	}

	return bytes.Replace(source, []byte(m.Old), []byte(m.New), 1), nil
}

// Overlay writes the sources with bugs, each in another file, into dir, and returns the file for go build's -overlay.
func Overlay(module, dir string, bugs ...*Mutant) (path string, err error) {
	root, err := filepath.Abs(module)
	if err != nil {
		return "", err
	}

	files := map[string]string{}

	for i, bug := range bugs {
		source, err := bug.apply(module)
		if err != nil {
			return "", err
		}

		planted := filepath.Join(dir, fmt.Sprintf("planted-%d.go", i))
		files[filepath.Join(root, bug.File)] = planted

		if err := os.WriteFile(planted, source, 0o600); err != nil {
			return "", err
		}
	}

	replace, err := json.Marshal(map[string]map[string]string{"Replace": files})
	if err != nil {
		return "", err
	}

	path = filepath.Join(dir, "overlay.json")

	return path, os.WriteFile(path, replace, 0o600)
}

// All are the mutants, the most dangerous first.
var All = []Mutant{
	{
		Name:    "an agent's place is not given back after a failed call",
		File:    "gateway/invoke.go",
		Old:     "reply, err := i.drive(ctx, w)\n\tif err != nil {\n\t\trelease()\n",
		New:     "reply, err := i.drive(ctx, w)\n\tif err != nil {\n",
		Package: "gateway",
		Test:    "TestPlacesOfAnAgentComeBack",
	},
	{
		Name:    "an agent's place is not given back after a refused input",
		File:    "gateway/invoke.go",
		Old:     "return i.accept(ctx, body, at) })\n\tif err != nil {\n\t\trelease()\n",
		New:     "return i.accept(ctx, body, at) })\n\tif err != nil {\n",
		Package: "gateway",
		Test:    "TestPlacesOfAnAgentComeBack",
	},
	{
		Name:    "an agent's place is not given back when a stream ends",
		File:    "gateway/invoke.go",
		Old:     "\tdefer r.release()\n",
		New:     "",
		Package: "gateway",
		Test:    "TestPlacesOfAnAgentComeBack",
	},
	{
		Name:    "a snapshot forgets until when the previous statement is in force",
		File:    "consensus/state/snapshot.go",
		Old:     "r.leaf, r.salt, r.until,",
		New:     "r.leaf, r.salt, 0,",
		Package: "consensus/state",
		Test:    "TestTheEncodingOfASnapshot",
	},
	{
		Name:    "an older head of the same state is taken",
		File:    "federation/replica/head.go",
		Old:     "\treturn head.IssuedAt > last.IssuedAt\n",
		New:     "\treturn head.IssuedAt != last.IssuedAt\n",
		Package: "federation/replica",
		Test:    "TestAHeadSignedEarlierIsOlder",
	},
	{
		Name:    "a watcher that is one change too far behind misses it",
		File:    "directory/index/changelog.go",
		Old:     "\tif l.ring == nil || from < l.first {",
		New:     "\tif l.ring == nil || from < l.first-1 {",
		Package: "directory/index",
		Test:    "TestTheLogHasExactlyItsSize",
	},
	{
		Name:    "a watcher that is one change too far behind resumes",
		File:    "directory/index/changelog.go",
		Old:     "return l.ring != nil && l.first <= from && from <= l.next",
		New:     "return l.ring != nil && l.first <= from+1 && from <= l.next",
		Package: "directory/index",
		Test:    "TestTheLogHasExactlyItsSize",
	},
	{
		Name:    "offline verification takes a record by a key that nothing attests",
		File:    "trust/verify.go",
		Old:     "used := []string{v.keysKey, v.recKey}",
		New:     "used := []string{v.keysKey}",
		Package: "trust",
		Test:    "TestVerifyNamesTheStep",
	},
	{
		Name: "age is counted from receipt",
		File: "discovery/filters.go",
		Old:  "\treturn max(0, (now.UnixMilli()-refreshed)/1000)\n",
		New: "\tif entry.Received != nil {\n\t\trefreshed = entry.Received.At\n\t}\n\n" +
			"\treturn max(0, (now.UnixMilli()-refreshed)/1000)\n",
		Package: "discovery",
		Test:    "TestAgeCountsFromTheOriginsRefresh",
	},
	{
		Name:    "the audit line names one of the policies that decided",
		File:    "api/request/call.go",
		Old:     "event.Policies = c.Decided",
		New:     "event.Policies = c.Decided[:min(1, len(c.Decided))]",
		Package: "api/request",
		Test:    "TestAnAuditEventSaysWhoAsked",
	},
	{
		Name:    "the prober renews by an old finding",
		File:    "gateway/probe/prober.go",
		Old:     "isFresh := now.UnixMilli()-found.At < roundTimeout.Milliseconds()",
		New:     "isFresh := true",
		Package: "gateway/probe",
		Test:    "TestAnOldFindingRenewsNothing",
	},
	{
		Name: "values of a query are decoded twice",
		File: "api/request/params.go",
		Old:  "\treturn norm.NFC.String(v), nil\n",
		New: "\tif again, err := url.QueryUnescape(v); err == nil {\n\t\tv = again\n\t}\n\n" +
			"\treturn norm.NFC.String(v), nil\n",
		Package: "api/request",
		Test:    "TestValuesAreDecodedOnce",
	},
	{
		Name:    "the node's taxonomies are missing in its metadata",
		File:    "discovery/about.go",
		Old:     "\t\tabout.Taxonomies = append(about.Taxonomies, t.ID)\n",
		New:     "\t\t_ = t\n",
		Package: "discovery",
		Test:    "TestAboutNamesTheTaxonomies",
	},
	{
		Name:    "an invitation is accepted after its end",
		File:    "node/accept.go",
		Old:     "\tif now.Unix() < token.Until {",
		New:     "\tif now.Unix() != 0 {",
		Package: "node",
		Test:    "TestAnEndedInvitationIsRefused",
	},
	{
		Name:    "the bundle endpoints of ended peerings are asked",
		File:    "federation/peering/bundles.go",
		Old:     "if !live || peering.Endpoint.IsZero() {",
		New:     "if _ = live; peering.Endpoint.IsZero() {",
		Package: "federation/peering",
		Test:    "TestBundlesOfEndedPeeringsAreNotAsked",
	},
	{
		Name:    "entries are freed 60 s early",
		File:    "federation/store/streamtx.go",
		Old:     ".Add(directory.Skew))",
		New:     ")",
		Package: "federation/store",
		Test:    "TestEntriesAreFreedAfterTheSkew",
	},
	{
		Name:    "words in a name weigh nothing",
		File:    "discovery/score.go",
		Old:     "\tnameShare   = .16\n",
		New:     "\tnameShare   = 0.0\n",
		Package: "discovery",
		Test:    "TestANameInTheQueryCounts",
	},
	{
		Name:    "ranked surfaces show registrations past their deadline",
		File:    "discovery/search.go",
		Old:     "s.finder.cfg.View.Get(k.origin, k.key.rid)",
		New:     "s.finder.cfg.View.Peek(k.origin, k.key.rid)",
		Package: "discovery",
		Test:    "TestNothingIsFoundPastItsDeadline",
	},
	{
		Name:    "lookups show registrations past their deadline",
		File:    "directory/index/find.go",
		Old:     "at.mask.has(matcher.mask) && e.AliveAt(now) && matcher.matches(e)",
		New:     "at.mask.has(matcher.mask) && matcher.matches(e)",
		Package: "directory/index",
		Test:    "TestLookupsEndAtTheDeadline",
	},
	{
		Name:    "lookups by name show registrations past their deadline",
		File:    "directory/index/view.go",
		Old:     "func(e *directory.Entry) bool { return !e.AliveAt(now) })",
		New:     "func(e *directory.Entry) bool { return now < 0 })",
		Package: "scenarios",
		Test:    "TestEverySurfaceEndsAtTheDeadline",
	},
	{
		Name:    "a registration is shown by its rid past its deadline",
		File:    "directory/index/view.go",
		Old:     "if !ok || !entry.AliveAt(index.Clock.Now().UnixMilli()) {",
		New:     "if !ok {",
		Package: "scenarios",
		Test:    "TestEverySurfaceEndsAtTheDeadline",
	},
	{
		Name:    "a rendered document outlives the deadlines in it",
		File:    "api/catalog/pages.go",
		Old:     "return !p.ends.IsZero() && !time.Now().Before(p.ends)",
		New:     "return false",
		Package: "api",
		Test:    "TestWoAEndsWithItsRegistrations",
	},
	{
		Name:    "a bound token ends with the token alone, not with its certificate",
		File:    "trust/credentials/bearer.go",
		Old:     "\t\tif end := trust.Expiry(cs); end.Before(until) {",
		New:     "\t\tif end := trust.Expiry(cs); end.IsZero() {",
		Package: "trust/credentials",
		Test:    "TestAccessTokens",
	},
	{
		Name:    "an expired certificate is good for as long as its connection lasts",
		File:    "trust/credentials/verifier.go",
		Old:     "\tif !end.IsZero() && !now.Before(end) {",
		New:     "\tif !end.IsZero() && now.IsZero() {",
		Package: "trust/credentials",
		Test:    "TestEachCredentialEnds",
	},
	{
		Name:    "the first line of a new file forgets the last applied position",
		File:    "trust/audit/files.go",
		Old:     "directory.AuditEvent{Position: a.applied, Change: a.changed}",
		New:     "directory.AuditEvent{Change: a.changed}",
		Package: "trust/audit",
		Test:    "TestACommandOfAnEarlierFileIsNotRepeated",
	},
	{
		Name:    "lines are removed before the line that says so is on disk",
		File:    "trust/audit/files.go",
		Old:     "errors.Join(a.put(line.append(nil), now), a.file.Sync())",
		New:     "a.put(line.append(nil), now)",
		Package: "trust/audit",
		Test:    "TestWhatIsRemovedIsOnDiskFirst",
	},
	{
		Name:    "the steps of a judgement are not taken from the shared budget",
		File:    "directory/schema/evaluate.go",
		Old:     "if budget.steps = e.steps; e.steps < 0 {",
		New:     "if e.steps < 0 {",
		Package: "directory/schema",
		Test:    "TestJudgementsShareABudget",
	},
	{
		Name:    "of a body that is counted in pieces only the first share comes back",
		File:    "api/admission/body.go",
		Old:     "\tfor _, release := range b.releases {",
		New:     "\tfor _, release := range b.releases[:min(1, len(b.releases))] {",
		Package: "api/admission",
		Test:    "TestABodyIsCountedBeforeItIsRead",
	},
	{
		Name:    "a farewell that a node failed to take counts as acknowledged",
		File:    "federation/peering/farewell.go",
		Old:     "if resp.StatusCode >= http.StatusInternalServerError {",
		New:     "if resp.StatusCode == http.StatusInternalServerError {",
		Package: "federation/peering",
		Test:    "TestAFormerPeerIsShownUntilItKnows",
	},
	{
		Name: "a change of bundles soon after another is missed",
		File: "node/listen.go",
		Old: "\t\tchanged = bundles.Changed()\n\n\t\td.closeInvalid()\n\n\t\tselect {\n" +
			"\t\tcase <-time.After(answerGrace):\n",
		New: "\t\td.closeInvalid()\n\n\t\tselect {\n" +
			"\t\tcase <-time.After(answerGrace):\n\t\t\tchanged = bundles.Changed()\n",
		Package: "node",
		Test:    "TestEachChangeOfBundlesClosesConnections",
	},
	{
		Name:    "a key is released after a time-out though the agent was reached",
		File:    "gateway/idempotency.go",
		Old:     "case !reached, problem == directory.AgentUnavailable,",
		New:     "case !reached, problem == directory.AgentTimeout, problem == directory.AgentUnavailable,",
		Package: "gateway",
		Test:    "TestWhatAKeyKeeps",
	},
	{
		Name:    "names are flagged by what the caller may not see",
		File:    "api/access/guard.go",
		Old:     "if !g.view.IsConfusable(entry, sees) {",
		New:     "if !g.view.IsConfusable(entry, func(*directory.Entry) bool { return true }) {",
		Package: "api",
		Test:    "TestALookalikeOfAHiddenNameIsNotFlagged",
	},
}
