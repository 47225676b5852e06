package discovery_test

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/gateway"
)

// A fakeModel is a server of embeddings for which words of one row are the same.
type fakeModel struct {
	*httptest.Server
	answers atomic.Value // how it answers: "", fails, hangs, short
	asked   atomic.Int64
}

var meanings = []string{"translate interpreter language english german", "invoice bill payment money",
	"weather rain forecast", "route map way journey"}

func newFakeModel(t *testing.T) *fakeModel {
	m := &fakeModel{}
	m.answers.Store("")
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(m.Close)

	return m
}

func (m *fakeModel) serve(w http.ResponseWriter, r *http.Request) {
	m.asked.Add(1)

	var ask struct{ Input []string }
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}

	length := len(meanings) + 1
	switch m.answers.Load() {
	case "fails":
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case "hangs":
		<-r.Context().Done()
		return
	case "short":
		length--
	}

	type item struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}

	var data []item
	for i, text := range slices.Backward(ask.Input) {
		v := make([]float32, length)

		v[0] = .5 // what all texts have in common
		for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
			return r < 'a' || r > 'z'
		}) {
			for j, of := range meanings[:length-1] {
				if slices.Contains(strings.Fields(of), word) {
					v[j+1]++
				}
			}
		}

		data = append(data, item{i, v})
	}

	_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
}

var offices = []agent{
	{name: "polyglot", description: "An interpreter who knows English and German."},
	{name: "cashier", description: "Sends each bill on time."},
	{name: "meteorologist", description: "Says whether there will be rain."},
	{name: "guide", description: "Shows the way on a map."},
}

// newMeaningWorld is a world with vectors of a model, followed until the test ends.
func newMeaningWorld(t *testing.T, m *fakeModel, agents ...agent) *world {
	t.Helper()

	e, err := gateway.NewEmbeddings(m.URL, "toy-1", "")
	must(t, err)

	t.Cleanup(e.Close)
	w := newWorld(t, func(c *discovery.Config) { c.Embedder = e }, agents...)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- w.finder.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ran })

	return w
}

// until asks until an answer is as it must be in the end.
func (w *world) until(t *testing.T, r discovery.Reader, request string,
	right func(*discovery.Result) bool) *discovery.Result {
	t.Helper()

	again := time.Tick(5 * time.Millisecond)
	for end := time.Now().Add(time.Minute); ; <-again {
		res := w.askAs(r, request)
		if right(res) {
			return res
		}

		if time.Now().After(end) {
			t.Fatalf("the answer stays %q, %+v, %q", names(res), res.Semantic, res.Warnings)
		}
	}
}

func settled(res *discovery.Result) bool {
	return res.Semantic.Source == discovery.SourceEmbeddings && len(res.Warnings) == 0
}

// What no word finds is found by what it means, with a score that its components
// make again, and evidence that adds up to them.
//
// Requirement: AI-006
func TestMeaningFindsWhatWordsDoNot(t *testing.T) {
	w := newMeaningWorld(t, newFakeModel(t), offices...)
	res := w.until(t, discovery.Reader{}, `{"query":"translate my language","include_evidence":true}`, settled)
	expect(t, res, "polyglot")

	c := res.Candidates[0]
	if got := discovery.DefaultWeights.Score(c.Components); math.Abs(got-c.Score) > 1e-9 {
		t.Errorf("the components make %v, the score is %v", got, c.Score)
	}

	if s := c.Evidence.Semantic; s == nil || math.Abs(s.Adds-c.Components.Context) > 1e-9 || s.Adds <= 0 {
		t.Errorf("vectors add %+v to a context of %v", s, c.Components.Context)
	}

	// What words find whole is left alone.
	res = w.until(t, discovery.Reader{}, `{"query":"interpreter english german","include_evidence":true}`, settled)
	if res.Semantic.Weight != 0 || res.Candidates[0].Entry.Agent != "polyglot" {
		t.Errorf("words cover the query, and vectors weigh %v: %q", res.Semantic.Weight, names(res))
	}

	// A registration that says something else by now means something else.
	w.put(agent{name: "polyglot", description: "Tells of rain."})
	w.until(t, discovery.Reader{}, `{"query":"translate my language"}`, func(r *discovery.Result) bool {
		return settled(r) && len(r.Candidates) == 0
	})
	w.remove("cashier")
	w.until(t, discovery.Reader{}, `{"query":"payment"}`, func(r *discovery.Result) bool {
		return settled(r) && len(r.Candidates) == 0
	})
}

// A longer query trusts vectors less.
func TestVectorsWeighLessInLongQueries(t *testing.T) {
	w := newMeaningWorld(t, newFakeModel(t), offices...)
	short := w.until(t, discovery.Reader{}, `{"query":"payment"}`, settled)

	long := w.until(t, discovery.Reader{},
		`{"query":"payment of seven purple elephants grazing beside quiet northern lakes"}`, settled)
	if short.Semantic.Weight <= long.Semantic.Weight || long.Semantic.Weight <= 0 {
		t.Errorf("vectors weigh %v in a short query and %v in a long one", short.Semantic.Weight, long.Semantic.Weight)
	}
}

// Vectors of what a reader may not see move nothing in its answers.
//
// Requirement: XU-021, XU-066
func TestHiddenVectorsLeaveNoTrace(t *testing.T) {
	m := newFakeModel(t)
	without := newMeaningWorld(t, m, offices...)

	with := newMeaningWorld(t, m, offices...)
	for i := range 20 {
		with.put(agent{name: "secret-" + ridOf(i).String(),
			description: "An interpreter of language, payment and rain.", peersOnly: true})
	}

	with.until(t, discovery.Reader{}, `{"query":"translate my language"}`, settled)

	for _, request := range []string{
		`{"query":"translate my language","include_evidence":true}`,
		`{"query":"payment of rain","include_evidence":true}`,
	} {
		want := without.until(t, public, request, settled)

		got := with.until(t, public, request, settled)
		if !reflect.DeepEqual(told(want), told(got)) || *want.Semantic != *got.Semantic {
			t.Errorf("%s:\nwith what is hidden    %+v\nwithout what is hidden %+v", request, told(got), told(want))
		}
	}
}

// While the source is away, slow, or answers with other dimensions, answers are
// those of words and say so; queries stop to wait for it; it is used again once
// it is back.
func TestAnswersWithoutVectors(t *testing.T) {
	m := newFakeModel(t)
	w := newMeaningWorld(t, m, offices...)
	plain := newWorld(t, nil, offices...)

	const request = `{"query":"shows rain on a bill","include_evidence":true}`
	w.until(t, discovery.Reader{}, request, settled)

	for _, how := range []string{"short", "fails", "hangs"} {
		m.answers.Store(how)

		res := w.ask(request)
		if res.Semantic.Source != discovery.SourceNone || res.Semantic.Model != "toy-1" {
			t.Errorf("%s: the answer is by %+v", how, res.Semantic)
		}

		if len(res.Warnings) != 1 {
			t.Errorf("%s: the answer warns %q", how, res.Warnings)
		}

		want := plain.ask(request)

		want.Warnings = res.Warnings
		if got := told(res); !reflect.DeepEqual(names(res), names(want)) ||
			!reflect.DeepEqual(got[:5], told(want)[:5]) {
			t.Errorf("%s: %+v, by words alone %+v", how, got, told(want))
		}
	}

	m.answers.Store("fails")

	for range 5 {
		w.ask(request)
	}

	before := m.asked.Load()

	for range 20 {
		w.ask(request)
	}

	if n := m.asked.Load() - before; n > 1 {
		t.Errorf("%d of 20 queries asked a source that is away", n)
	}
}

// A model of another name has another space: the vectors that are there are not
// compared with its.
func TestAnotherModelBeginsAnotherSpace(t *testing.T) {
	m := newFakeModel(t)
	e := &renamed{}

	var err error
	if e.Embeddings, err = gateway.NewEmbeddings(m.URL, "toy-1", ""); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(e.Close)
	e.name.Store("toy-1")
	w := newWorld(t, func(c *discovery.Config) { c.Embedder = e }, offices...)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- w.finder.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ran })

	const request = `{"query":"payment"}`
	w.until(t, discovery.Reader{}, request, settled)
	m.answers.Store("short") // as the other model answers
	e.name.Store("toy-2")

	if res := w.ask(request); len(res.Warnings) != 1 || res.Semantic.Source != discovery.SourceNone {
		t.Errorf("right after the change: %+v, %q", res.Semantic, res.Warnings)
	}

	res := w.until(t, discovery.Reader{}, request, settled)
	if res.Semantic.Model != "toy-2" {
		t.Errorf("the answer is by %+v", res.Semantic)
	}

	expect(t, res, "cashier")
}

type renamed struct {
	*gateway.Embeddings
	name atomic.Value
}

func (r *renamed) Model() string { return r.name.Load().(string) }

var _ discovery.Embedder = (*gateway.Embeddings)(nil)
