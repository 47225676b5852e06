package content

// BM25F (discovery.md 2). Field lengths are compared with constants, not with averages of the
// indexed registrations. So a weight is known when a registration is read, and registrations
// that a caller may not see cannot change it.
var (
	fieldWeights = [FieldCount]float64{3, 1.5, 1, 1}
	fieldB       = [FieldCount]float64{.3, .6, .3, .6}
	fieldPivots  = [FieldCount]float64{3, 10, 4, 20} // words
)

// Saturation is k1 of BM25F.
const Saturation = 1.5

// Lengths are those of a registration's fields in words, made longer by gates.
type Lengths [FieldCount]float64

// Weigh returns a term's weight in a registration, within 0 and 1, and the share of each field
// in it.
func (l *Lengths) Weigh(counts Counts) (float64, [FieldCount]float64) {
	var (
		w  float64
		by [FieldCount]float64
	)
	for f, n := range counts {
		if n > 0 {
			by[f] = fieldWeights[f] * float64(n) / (1 - fieldB[f] + fieldB[f]*l[f]/fieldPivots[f])
			w += by[f]
		}
	}

	for f := range by {
		by[f] /= Saturation + w
	}

	return w / (Saturation + w), by
}
