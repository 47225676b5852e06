package table

// An Ordered value compares itself with another: under 0 if it comes before it.
type Ordered[T any] interface{ Compare(T) int }

// A Heap keeps its least item first. The zero value is empty. Growing copies no items.
type Heap[T Ordered[T]] struct {
	items Paged[T] // may be longer than the heap
	n     uint32
}

// Len returns how many items there are.
func (h *Heap[T]) Len() int { return int(h.n) }

// First returns the least item, which must be there.
func (h *Heap[T]) First() T { return *h.items.At(0) }

// Items returns a copy of all items, in no particular order.
func (h *Heap[T]) Items() []T {
	all := make([]T, h.n)
	for i := range all {
		all[i] = *h.items.At(uint32(i))
	}

	return all
}

// Push adds an item.
func (h *Heap[T]) Push(v T) {
	if h.n == h.items.Len() {
		h.items.Add()
	}

	i := h.n

	h.n++
	for i > 0 {
		parent := h.items.At((i - 1) / 2)
		if (*parent).Compare(v) <= 0 {
			break
		}

		*h.items.At(i) = *parent
		i = (i - 1) / 2
	}

	*h.items.At(i) = v
}

// Pop removes the least item, which must be there, and returns it.
func (h *Heap[T]) Pop() T {
	var none T
	h.n--
	least, end := *h.items.At(0), h.items.At(h.n)
	v := *end

	// The place is cleared, so that it keeps nothing in memory.
	*end = none

	if h.n == 0 {
		return least
	}

	i := uint32(0)
	for child := uint32(1); child < h.n; child = 2*i + 1 {
		first := h.items.At(child)
		if child+1 < h.n && (*h.items.At(child + 1)).Compare(*first) < 0 {
			child++
			first = h.items.At(child)
		}

		if v.Compare(*first) <= 0 {
			break
		}

		*h.items.At(i) = *first
		i = child
	}

	*h.items.At(i) = v

	return least
}
