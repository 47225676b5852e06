package ledger

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory"
)

// TileWidth is the number of hashes of a full tile, and of entries of a full bundle.
const TileWidth = 1 << tileBits

const tileBits = 8

// BundleSize is the length of a bundle of width entries of this package's form.
func BundleSize(width int) int { return width * bundled }

// TilePath returns the end of the path of a tile or bundle of a width: its number in groups of three
// digits, and the width if it is not a full one.
func TilePath(n uint64, width int) string {
	path := fmt.Sprintf("%03d", n%1000)
	for n /= 1000; n > 0; n /= 1000 {
		path = fmt.Sprintf("x%03d/%s", n%1000, path)
	}

	if width < TileWidth {
		path += ".p/" + strconv.Itoa(width)
	}

	return path
}

// ErrNoTile says that the tree has no such tile, bundle or entry.
var ErrNoTile = errors.New("the ledger has no such tile")

// A hashReader reads hashes of a log as they are on disk. Its user compares the root that they lead to.
type hashReader struct {
	log    *Log
	groups []group // of each column the one that was read last
}

func (l *Log) reader() hashReader { return hashReader{l, make([]group, len(l.hashes))} }

// node returns the root of the complete subtree number n with 1<<level leaves.
func (r hashReader) node(level int, n uint64) (tlog.Hash, error) {
	column, below := level/fanoutBits, level%fanoutBits

	if column >= len(r.log.hashes) {
		return tlog.Hash{}, ErrIncomplete
	}

	run, err := r.groups[column].run(r.log.hashes[column], n<<below, (n+1)<<below)
	if err != nil {
		return tlog.Hash{}, err
	}

	return treeOf(run), nil
}

// ReadHashes implements tlog.HashReader.
func (r hashReader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))

	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)

		var err error
		if hashes[i], err = r.node(level, uint64(n)); err != nil {
			return nil, err
		}
	}

	return hashes, nil
}

// A group is the fanout values of a column that complete one of the next. The hashes of a proof that come
// from one column are mostly of one group, so that it is read once.
type group struct {
	first, n uint64
	values   [fanout * tlog.HashSize]byte
}

// run returns the values of [from, to), which are of one group of the column.
func (g *group) run(c *column, from, to uint64) ([]byte, error) {
	if first := from &^ (fanout - 1); first != g.first || to > first+g.n {
		g.first, g.n = first, 0

		n := max(min(first+fanout, c.n), to) - first
		if err := c.readInto(g.values[:n*tlog.HashSize], first); err != nil {
			return nil, err
		}

		g.n = n
	}

	return g.values[(from-g.first)*tlog.HashSize : (to-g.first)*tlog.HashSize], nil
}

// Height implements tlog.TileReader.
func (hashReader) Height() int { return fanoutBits }

// ReadTiles implements tlog.TileReader.
func (r hashReader) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(tiles))

	for i, t := range tiles {
		if t.L >= len(r.log.hashes) {
			return nil, ErrIncomplete
		}

		var err error
		if data[i], err = r.log.hashes[t.L].read(uint64(t.N)*fanout, uint64(t.N)*fanout+uint64(t.W)); err != nil {
			return nil, err
		}
	}

	return data, nil
}

// SaveTiles implements tlog.TileReader.
func (hashReader) SaveTiles([]tlog.Tile, [][]byte) {}

// read calls use with the files of a tree. Damaged entries are missing from then on.
func (l *Log) read(tree Tree, use func(hashReader) error) error {
	l.mu.RLock()
	defer l.mu.RUnlock()

	if l.have < tree.Size {
		return ErrIncomplete
	}

	return use(l.reader())
}

// damaged marks all entries as missing, because some or their hashes are not the owner's.
func (l *Log) damaged(err error) error {
	if err == nil || errors.Is(err, ErrNoTile) || errors.Is(err, ErrIncomplete) {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.have = 0

	return fmt.Errorf("%w: %w", ErrIncomplete, err)
}

// Tile returns the first width hashes of a tile of C2SP tlog-tiles, compared with the owner's tree.
func (l *Log) Tile(tree Tree, level int, n uint64, width int) (tile []byte, err error) {
	// The bound on n keeps the product from overflowing.
	if level < 0 || level > 7 || width < 1 || width > TileWidth ||
		n >= 1<<48 || n*TileWidth+uint64(width) > tree.Size>>(tileBits*level) {
		return nil, ErrNoTile
	}

	err = l.read(tree, func(r hashReader) (err error) {
		tile, err = r.checked(tree, tileBits*level, n*TileWidth, width)
		return err
	})

	return tile, l.damaged(err)
}

// checked returns hashes of a level, compared with the tree.
func (r hashReader) checked(tree Tree, level int, first uint64, count int) ([]byte, error) {
	indexes := make([]int64, count)
	for i := range indexes {
		indexes[i] = tlog.StoredHashIndex(level, int64(first)+int64(i))
	}

	hashes, err := r.compared(tree).ReadHashes(indexes)

	var data []byte
	for _, h := range hashes {
		data = append(data, h[:]...)
	}

	return data, err
}

// compared reads hashes of a tree, each tile of which is compared with the tree before a hash of it is returned.
func (r hashReader) compared(tree Tree) tlog.HashReader {
	return tlog.TileHashReader(tlog.Tree{N: int64(tree.Size), Hash: tlog.Hash(tree.Root)}, r)
}

// Bundle returns the first width entries of a bundle of C2SP tlog-tiles, compared with the owner's tree.
func (l *Log) Bundle(tree Tree, n uint64, width int) (bundle []byte, err error) {
	if width < 1 || width > TileWidth || n >= 1<<48 || n*TileWidth+uint64(width) > tree.Size {
		return nil, ErrNoTile
	}

	err = l.read(tree, func(r hashReader) (err error) {
		if bundle, err = l.entries.read(n*TileWidth, n*TileWidth+uint64(width)); err != nil {
			return err
		}

		hashes, err := r.checked(tree, 0, n*TileWidth, width)
		if err != nil {
			return err
		}

		entries, err := unbundle(bundle)
		for i, e := range entries {
			if h := e.Hash(); string(h[:]) != string(hashes[i*len(h):][:len(h)]) {
				return fmt.Errorf("entry %d of the ledger is damaged", n*TileWidth+uint64(i))
			}
		}

		return err
	})

	return bundle, l.damaged(err)
}

// Entries returns a run of entries as they are on disk: the receiver compares the root that they lead to.
func (l *Log) Entries(tree Tree, from, n uint64) (entries []byte, err error) {
	if from+n > tree.Size || from+n < from {
		return nil, ErrNoTile
	}

	err = l.read(tree, func(hashReader) (err error) {
		entries, err = l.entries.read(from, from+n)
		return err
	})

	return entries, err
}

// Prove returns the hashes from an entry's sibling up to the root of the tree.
func (l *Log) Prove(tree Tree, index uint64) (path []directory.Hash, err error) {
	if index >= tree.Size {
		return nil, ErrNoTile
	}

	err = l.read(tree, func(r hashReader) error {
		proof, err := tlog.ProveRecord(int64(tree.Size), int64(index), r)
		if err != nil {
			return err
		}

		leaf, err := r.groups[0].run(r.log.hashes[0], index, index+1)
		if err != nil {
			return err
		}

		path = hashesOf(proof)

		// The files may be damaged, so the proof is checked before it is handed out.
		return tlog.CheckRecord(proof, int64(tree.Size), tlog.Hash(tree.Root), int64(index), tlog.Hash(leaf))
	})

	return path, l.damaged(err)
}

// Consistency returns the proof that the tree has another, smaller one as its beginning.
func (l *Log) Consistency(tree Tree, old uint64) (proof []directory.Hash, err error) {
	if old == 0 || old == tree.Size { // nothing to prove
		return nil, nil
	}

	if old > tree.Size {
		return nil, ErrNoTile
	}

	err = l.read(tree, func(r hashReader) error {
		hashes, err := tlog.ProveTree(int64(tree.Size), int64(old), r.compared(tree))
		proof = hashesOf(hashes)

		return err
	})

	return proof, l.damaged(err)
}

// Root returns the root of the tree when it had a smaller size.
func (l *Log) Root(tree Tree, size uint64) (root directory.Hash, err error) {
	if size > tree.Size {
		return root, ErrNoTile
	}

	if size == 0 {
		return directory.HashOf(nil), nil
	}

	err = l.read(tree, func(r hashReader) error {
		h, err := tlog.TreeHash(int64(size), r)
		root = directory.Hash(h)

		return err
	})

	return root, l.damaged(err)
}

func hashesOf(proof []tlog.Hash) []directory.Hash {
	hashes := make([]directory.Hash, len(proof))
	for i, h := range proof {
		hashes[i] = directory.Hash(h)
	}

	return hashes
}
