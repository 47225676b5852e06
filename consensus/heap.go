package consensus

// An ordered value says whether it comes before another (under 0) or after it.
type ordered[T any] interface{ compare(T) int }

// A heap keeps its least item first.
type heap[T ordered[T]] struct{ items []T }

func (h *heap[T]) push(v T) {
	h.items = append(h.items, v)
	for i := len(h.items) - 1; i > 0; {
		parent := (i - 1) / 2
		if h.items[parent].compare(h.items[i]) <= 0 {
			return
		}
		h.items[parent], h.items[i] = h.items[i], h.items[parent]
		i = parent
	}
}

func (h *heap[T]) pop() T {
	least, last := h.items[0], len(h.items)-1
	h.items[0] = h.items[last]
	h.items = h.items[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return least
		}
		if child+1 < last && h.items[child+1].compare(h.items[child]) < 0 {
			child++
		}
		if h.items[i].compare(h.items[child]) <= 0 {
			return least
		}
		h.items[i], h.items[child] = h.items[child], h.items[i]
		i = child
	}
}
