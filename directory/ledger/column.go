package ledger

import (
	"fmt"
	"io"
	"os"
)

// unwritten is how many bytes of a column are kept in memory before they are written: about
// a full tile.
const unwritten = 8 << 10

// A column is a file of values of one width, and those that are not written to it yet.
type column struct {
	file  *os.File
	width int64
	n     uint64 // of values
	tail  []byte // the last ones
}

func openColumn(path string, width int64) (*column, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}

	return &column{file: file, width: width}, nil
}

// stored returns how many values the file has.
func (c *column) stored() (uint64, error) {
	info, err := c.file.Stat()
	if err != nil {
		return 0, err
	}

	return uint64(info.Size() / c.width), nil
}

// cut goes on behind the first n values of the file.
func (c *column) cut(n uint64) { c.n, c.tail = n, c.tail[:0] }

func (c *column) append(value []byte) error {
	c.tail = append(c.tail, value...)
	c.n++

	if len(c.tail) < unwritten {
		return nil
	}

	return c.flush()
}

// flush writes the tail to the file.
func (c *column) flush() error {
	if len(c.tail) == 0 {
		return nil
	}

	// The place follows from the count, so that a failed write is repeated in full.
	if _, err := c.file.WriteAt(c.tail, c.written()*c.width); err != nil {
		return err
	}

	c.tail = c.tail[:0]

	return nil
}

// written returns how many of the values are in the file.
func (c *column) written() int64 { return int64(c.n) - int64(len(c.tail))/c.width }

// read returns the values of [from, to).
func (c *column) read(from, to uint64) ([]byte, error) {
	data := make([]byte, int64(to-from)*c.width)

	return data, c.readInto(data, from)
}

// readInto fills data with the values from an index on.
func (c *column) readInto(data []byte, from uint64) error {
	n := int64(len(data)) / c.width
	if to := from + uint64(n); to > c.n {
		return fmt.Errorf("%w: values %d to %d of %d", io.ErrUnexpectedEOF, from, to, c.n)
	}

	// A range may begin in the file and end in the tail.
	inFile := min(max(c.written()-int64(from), 0), n) * c.width
	if _, err := c.file.ReadAt(data[:inFile], int64(from)*c.width); err != nil {
		return err
	}

	first := max(int64(from)-c.written(), 0) * c.width
	copy(data[inFile:], c.tail[min(first, int64(len(c.tail))):])

	return nil
}
