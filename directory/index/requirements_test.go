package index_test

import (
	"slices"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// Each filter must be met by the agent as a whole: capabilities and tags by
// containment, languages by those that say which they speak.
//
// Requirement: AI-004, AI-028
func TestNeedIsOfTheWholeAgent(t *testing.T) {
	view := index.NewView(alpha)
	put := func(n byte, kind directory.Kind, agent, body string) {
		doc := mustDocument(t, kind, body)
		view.Own().Put(&directory.Entry{
			Origin: alpha, RID: rid(n), Agent: agent, Document: doc,
			Packed: directory.Pack(doc, mustProject(t, agent, doc)), Created: uint64(n),
			ExpiresAt: time.Now().Add(time.Hour).UnixMilli(),
		})
	}

	const metadata = `{"name":"N","description":"D","endpoint":"https://a.test","inputs":{},"outputs":{},`
	put(1, directory.KindAIDIP, "both",
		metadata+`"capabilities":["translate","detect"],"tags":["nlp","cloud"],"supported_languages":["en","zh"]}`)
	put(2, directory.KindAIDIP, "one", metadata+`"capabilities":["translate"],"tags":["nlp"]}`)
	put(3, directory.KindAIDIP, "tool",
		`{"name":"N","description":"D","endpoint":"https://a.test","capabilities":["translate"],
		"operations":[{"name":"translate","description":"D","inputs":{},"outputs":{}},{"name":"detect","description":"D","inputs":{},"outputs":{}}]}`)
	put(4, directory.KindAD, "ad",
		`{"base":"https://a.test","supported_languages":["en"],"capabilities":[{"name":"translate","type":"tool","tags":["nlp"]},{"name":"detect","type":"tool","tags":["cloud"]}]}`)
	put(5, directory.KindAD, "nothing", `{"base":"https://a.test"}`)

	for name, c := range map[string]struct {
		need index.Requirements
		want []string
	}{
		"nothing asked": {index.Requirements{}, []string{"both", "one", "tool", "ad", "nothing"}},
		"a capability": {index.Requirements{Capabilities: []string{"translate"}},
			[]string{"both", "one", "tool", "ad"}},
		"two, of one or two": {index.Requirements{Capabilities: []string{"detect", "translate"}},
			[]string{"both", "ad"}},
		"tags of two": {index.Requirements{Tags: []string{"cloud", "nlp"}}, []string{"both", "ad"}},
		"capability and tag": {index.Requirements{Capabilities: []string{"translate"}, Tags: []string{"cloud"}},
			[]string{"both", "ad"}},
		"a language or none": {index.Requirements{Languages: []string{"zh"}},
			[]string{"both", "one", "tool", "nothing"}},
		"in another case": {index.Requirements{Languages: []string{"ZH"}},
			[]string{"both", "one", "tool", "nothing"}},
		"languages": {index.Requirements{Languages: []string{"zh", "en"}},
			[]string{"both", "one", "tool", "nothing"}},
		"all": {index.Requirements{Capabilities: []string{"translate"}, Tags: []string{"nlp"},
			Languages: []string{"zh"}}, []string{"both", "one"}},
		"what nobody has":     {index.Requirements{Capabilities: []string{"fly"}}, nil},
		"no text":             {index.Requirements{Tags: []string{""}}, nil},
		"a name is no prefix": {index.Requirements{Capabilities: []string{"trans"}}, nil},
	} {
		var got []string
		for _, e := range view.Lookup(index.Query{Requirements: c.need}, nil).Entries {
			got = append(got, e.Agent)
		}

		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
