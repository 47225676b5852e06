package discovery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// An Embedder turns texts into vectors of one model's space, in which texts that
// mean nearly the same are near each other. It is safe for concurrent use.
type Embedder interface {
	// Model names the space: vectors of two models are never compared.
	Model() string
	// Embed returns a vector for each text, all of one length. A finder asks for at
	// most embedBatch of them, of at most maxEmbedded bytes each.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Semantic describes the part of vectors in an answer.
type Semantic struct {
	Source string `json:"source"` // SourceEmbeddings, or SourceNone where they have no part
	Model  string `json:"model"`
	// Weight is the share of the component context that is nearness of vectors, the same for
	// all candidates. It falls with the length of the query, and the better the matches by
	// words cover the query.
	Weight float64 `json:"weight"`
}

// The sources of vectors.
const (
	SourceNone       = "none"
	SourceEmbeddings = "embeddings"
)

// Warnings of unavailable or missing vectors.
const (
	WarnAway    = "the embedder is unavailable: ranked by words alone"
	WarnVectors = "some registrations have no vectors yet: those are ranked by words alone"
)

// Bounds on requests to the source of vectors.
const (
	embedBatch    = 32      // texts of a request
	maxEmbedded   = 4 << 10 // bytes of a text
	maxDimensions = 4096
	maxAsking     = 16 // queries that wait for a vector at a time
	queryPatience = time.Second
	batchPatience = 30 * time.Second
)

// A breaker stops queries from waiting for a source that is away. After a number of failures in
// a row, no query calls the source for a while, and then one tries.
type breaker struct {
	asking chan struct{} // a semaphore of calls to the source

	mu     sync.Mutex
	failed int       // in a row
	again  time.Time // when the next one may try
}

const (
	breaksAfter = 3
	restsFor    = 15 * time.Second
)

var errAway = errors.New("discovery: embedder unavailable")

// begin reports whether a query may ask; end follows if so.
func (b *breaker) begin() bool {
	select {
	case b.asking <- struct{}{}:
	default:
		// A query that would wait for a place is ranked by words alone.
		return false
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if b.failed >= breaksAfter {
		if time.Now().Before(b.again) {
			<-b.asking
			return false
		}

		b.again = time.Now().Add(restsFor) // the others wait for this one
	}

	return true
}

func (b *breaker) end(ok bool) {
	<-b.asking
	b.mu.Lock()
	defer b.mu.Unlock()

	if ok {
		b.failed = 0
		return
	}

	if b.failed++; b.failed >= breaksAfter {
		b.again = time.Now().Add(restsFor)
	}
}

// A queryVector is the vector of a query, in a model's space.
type queryVector struct {
	model  string
	vector vector
}

// embed asks a source and judges its answer.
func embed(ctx context.Context, e Embedder, texts []string) (model string, vs []vector, err error) {
	model = e.Model()

	answer, err := e.Embed(ctx, texts)
	if err != nil {
		return "", nil, err
	}

	if len(answer) != len(texts) {
		return "", nil, fmt.Errorf("%d vectors for %d texts", len(answer), len(texts))
	}

	for _, v := range answer {
		vector, err := pack(v)
		if err != nil {
			return "", nil, err
		}

		if len(vs) > 0 && len(vs[0].q) != len(vector.q) {
			return "", nil, errors.New("vectors differ in length")
		}

		vs = append(vs, vector)
	}

	return model, vs, nil
}
