package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A backup is a file: this line, a header, the items of a snapshot, and the SHA-256
// of all before it. Master salts are inside, keys are not.
const Mark = "ROSTER BACKUP 1\n"

// Version is the version of the contents between the mark and the sum.
const Version = 1

type Header struct {
	Version uint        `cbor:"1,keyasint"`
	Node    spiffeid.ID `cbor:"2,keyasint"` // that wrote it
	Taken   int64       `cbor:"3,keyasint"` // Unix seconds, by its clock
}

// A Backup is the contents of a backup, without its secrets.
type Backup struct {
	state.Summary

	Node  spiffeid.ID // that wrote it
	Taken time.Time
	Size  int64          // of the backup, in bytes
	Sum   directory.Hash // SHA-256 of all of it, but for the sum at its end, which is this one
}

// Write writes a backup of a snapshot.
func Write(w io.Writer, header Header, snapshot *state.Snapshot) error {
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<16)

	_, err := out.WriteString(Mark)
	if err == nil {
		err = state.NewEncoder(out).Encode(header)
	}

	if err == nil {
		err = snapshot.Write(out)
	}

	if err == nil {
		err = out.Flush()
	}

	if err == nil {
		_, err = w.Write(sum.Sum(nil))
	}

	if err != nil {
		return fmt.Errorf("write a backup: %w", err)
	}

	return nil
}

// ErrBackup says that a file is no backup that this release can use.
var ErrUnusable = errors.New("not a usable backup")

var (
	errShortBackup = fmt.Errorf("%w: it is too short", ErrUnusable)
	errBackupSum   = fmt.Errorf("%w: wrong checksum; the file is truncated or damaged", ErrUnusable)
)

// Open checks a backup's sum and returns its header and its items.
func Open(file io.ReaderAt, size int64) (header Header, items io.Reader, err error) {
	whole := newSummedReader(io.NewSectionReader(file, 0, size))
	if _, err := io.Copy(io.Discard, whole); err != nil {
		return header, nil, err
	}

	return ReadHeader(io.NewSectionReader(file, 0, size-sha256.Size))
}

// ReadHeader reads the mark and the header of a backup, and returns the items
// behind them.
func ReadHeader(r io.Reader) (header Header, items io.Reader, err error) {
	buffered := bufio.NewReaderSize(r, 1<<16)

	mark := make([]byte, len(Mark))
	if _, err := io.ReadFull(buffered, mark); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return header, nil, errShortBackup
	} else if err != nil {
		return header, nil, err
	}

	if string(mark) != Mark {
		return header, nil, fmt.Errorf("%w: it does not begin as a backup does, or is of another release", ErrUnusable)
	}

	dec := state.NewDecoder(buffered)
	if err := dec.Decode(&header); err != nil {
		return header, nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}

	if header.Version != Version {
		return header, nil, fmt.Errorf("%w: it has version %d; this release knows %d", ErrUnusable, header.Version,
			Version)
	}

	// The decoder has read ahead, so the items begin in its buffer.
	return header, io.MultiReader(dec.Buffered(), buffered), nil
}

// A summedReader reads a backup but for the sum at its end, which it compares there:
// in the place of io.EOF comes errBackupSum if that doesn't hold.
type summedReader struct {
	r    *bufio.Reader
	sum  hash.Hash
	size int64 // bytes read, with the sum
}

func newSummedReader(r io.Reader) *summedReader {
	return &summedReader{r: bufio.NewReaderSize(r, 1<<16), sum: sha256.New(), size: sha256.Size}
}

// Read implements io.Reader.
func (s *summedReader) Read(data []byte) (int, error) {
	// The last bytes are the sum, so as many are always held back.
	ahead, err := s.r.Peek(min(len(data), 1<<15) + sha256.Size)
	if n := len(ahead) - sha256.Size; n > 0 {
		copy(data, ahead[:n])
		s.sum.Write(ahead[:n])
		s.size += int64(n)
		_, err := s.r.Discard(n)

		return n, err
	}

	switch {
	case err == nil:
		return 0, nil // nothing was asked for
	case !errors.Is(err, io.EOF):
		return 0, err
	case len(ahead) < sha256.Size:
		return 0, errShortBackup
	case !bytes.Equal(s.sum.Sum(nil), ahead):
		return 0, errBackupSum
	}

	return 0, io.EOF
}

// Inspect reads a backup to its end and returns its contents, without a directory. Its errors
// are ErrBackup, except for the reader's own.
func Inspect(r io.Reader) (*Backup, error) {
	whole := newSummedReader(r)
	backup, err := inspectItems(whole)

	// A damaged backup can fail to be read before its sum is reached; the sum's error is
	// clearer.
	if _, damaged := io.Copy(io.Discard, whole); damaged != nil {
		return nil, damaged
	}

	if err != nil {
		return nil, err
	}

	backup.Size = whole.size
	backup.Sum = directory.Hash(whole.sum.Sum(nil))

	return backup, nil
}

func inspectItems(r io.Reader) (*Backup, error) {
	top, items, err := ReadHeader(r)
	if err != nil {
		return nil, err
	}

	info, err := state.Inspect(items)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}

	return &Backup{Summary: *info, Node: top.Node, Taken: time.Unix(top.Taken, 0)}, nil
}
