package scenarios

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A fakeModel is a server of embeddings for which words of one row mean the same. Its
// vectors have as many numbers as it has rows, and one more.
type fakeModel struct {
	rows  []string
	away  atomic.Bool
	asked atomic.Int64
}

// ServeHTTP implements http.Handler: POST /v1/embeddings.
func (m *fakeModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.asked.Add(1)

	var ask struct {
		Input []string `json:"input"`
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || m.away.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}

	type item struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}

	var data []item
	for i, text := range ask.Input {
		v := make([]float32, len(m.rows)+1)

		v[0] = .5 // common to all texts
		for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
			return r < 'a' || r > 'z'
		}) {
			for j, row := range m.rows {
				if slices.Contains(strings.Fields(row), word) {
					v[j+1]++
				}
			}
		}

		data = append(data, item{i, v})
	}

	_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
}

// vectorInfo is the part of a response that concerns vectors.
type vectorInfo struct {
	Candidates []struct {
		ID string `json:"id"`
	} `json:"candidates"`
	Warnings []string `json:"warnings"`
	Semantic struct {
		Source string  `json:"source"`
		Model  string  `json:"model"`
		Weight float64 `json:"weight"`
	} `json:"semantic"`
}

// Nodes with sources of vectors, each of another model, find agents that no word of the
// query finds, each in its model's space. While a source is away, its node answers by
// words alone, reports that, and soon stops asking. The other node isn't affected.
//
// Requirement: XU-018, AI-006
func TestANodeRanksByMeaning(t *testing.T) {
	t.Parallel()
	models := []*fakeModel{
		{rows: []string{"interpreter language german", "bill invoice payment"}},
		{rows: []string{"rain", "interpreter language german", "bill invoice payment", "map"}},
	}
	m := mesh.Start(t, mesh.Options{Domains: 2, RealTime: true, Configure: func(c *config.Config) {
		i := 0
		if c.TrustDomain.Name() != "alpha.test" {
			i = 1
		}

		s := httptest.NewServer(models[i])
		t.Cleanup(s.Close)
		c.Discovery.Embeddings = config.Embeddings{URL: s.URL, Model: fmt.Sprint("toy-", i+1)}
	}})

	ada := apiclient.NewDirect(m.Domains[0].Nodes[0].URL(), m.Domains[0].Nodes[0].HTTP("/agent/ada"))
	for name, says := range map[string]string{"polyglot": "An interpreter for any occasion.",
		"cashier": "Sends each bill on time."} {
		doc := fmt.Sprintf(`{"id":%q,"name":%q,"description":%q,`+
			`"bindings":[{"protocol":"https","endpoint":"https://a.example/"}]}`, name, name, says)
		if _, err := ada.Register(t.Context(), name, []byte(doc),
			apiclient.RegisterOptions{Kind: "profile"}); err != nil {
			t.Fatal(err)
		}
	}

	ask := func(d int, query string) (a vectorInfo) {
		t.Helper()
		n := m.Domains[d].Nodes[0]

		got := exchangeOf(t, n.HTTP("/client/reader"), n.URL(), http.MethodPost, "/discovery/query",
			fmt.Sprintf(`{"query":%q}`, query))
		if err := json.Unmarshal(got.body, &a); err != nil || got.status != http.StatusOK {
			t.Fatalf("%d: %s: %v", got.status, got.body, err)
		}

		return a
	}
	for d := range models {
		m.Eventually(time.Minute, "agents are found by meaning", func() error {
			a := ask(d, "german language")
			if a.Semantic.Source != "embeddings" || a.Semantic.Model != fmt.Sprint("toy-", d+1) ||
				a.Semantic.Weight <= 0 || len(a.Warnings) > 0 || len(a.Candidates) != 1 ||
				a.Candidates[0].ID != "polyglot" {
				return fmt.Errorf("%+v", a)
			}

			return nil
		})
	}

	models[0].away.Store(true)

	for range 5 {
		a := ask(0, "each bill")
		if a.Semantic.Source != "none" || a.Semantic.Weight != 0 || len(a.Warnings) != 1 ||
			!strings.Contains(a.Warnings[0], "by words alone") || len(a.Candidates) != 1 ||
			a.Candidates[0].ID != "cashier" {
			t.Errorf("with the source away: %+v", a)
		}
	}

	asked := models[0].asked.Load()

	const more = 5
	for range more {
		ask(0, "each bill")
	}

	if now := models[0].asked.Load(); now-asked >= more { // one may have tried again
		t.Errorf("the source that is away is asked by every query: %d times more", now-asked)
	}

	m.Eventually(time.Minute, "the node whose source is there ranks by meaning", func() error {
		if a := ask(1, "german language"); a.Semantic.Source != "embeddings" || len(a.Candidates) != 1 {
			return fmt.Errorf("%+v", a)
		}

		return nil
	})
}
