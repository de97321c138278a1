package inflate

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

const (
	window = 32 << 10 // bytes that a match can reach back

	// A round of the fast loop reads at most two words of the input, and writes at most three literals or two
	// and one match, of which it copies 16 bytes at once.
	roomInput  = 16
	roomOutput = 2 + 258 + 16

	firstInput, mostInput   = 4 << 10, 32 << 10
	firstOutput, mostOutput = 16 << 10, 2*window + roomOutput

	mostEmptyReads = 100 // as in bufio
)

var word = binary.LittleEndian

// phase is what the input has next.
type phase uint8

const (
	phaseHeader  phase = iota // of a member: 10 bytes
	phaseBlock                // header of a block
	phaseStored               // length of a stored block
	phaseCopy                 // its bytes
	phaseDynamic              // header of a block with codes
	phasePre                  // lengths of the code that the lengths of the codes are in
	phaseLengths              // lengths of the codes
	phaseSymbols              // literals and matches
	phaseCRC                  // checksum of the member
	phaseSize                 // and its size
)

// members decodes streams of many small gzip members. Tables, history and buffers serve all members of a
// stream, so that a member allocates nothing. A member has no history of those before it: where all before
// it is read, its output begins again at the front of the buffer, in the cache of the CPU.
//
// Read returns what is decoded before it waits for more of the body. Between two reads of the body the state
// is a phase, a count and the bits of at most 8 bytes, as each step takes all of its bits or none.
type members struct {
	body    io.Reader
	bodyErr error

	in     []byte // in[at:end] is not in bits yet
	at     int
	end    int
	passed int64  // bytes of the body before in[0]
	bits   uint64 // The lowest bit is next. Bits above the n lowest are those that in has next, or zero.
	n      uint

	out    []byte // out[read:write] is decoded and not read
	read   int
	write  int
	start  int // of the member in out; negative once it has left the window
	summed int // out[start:summed] is in sum and size

	phase phase
	final bool  // this is the last block of its member
	count int   // bytes or code lengths that the phase has taken, or that it has left
	began int64 // bits of the body before the first block of the member
	err   error
	exact io.Reader // of the rest of the body, once it is used

	header [10]byte
	sum    uint32
	size   uint32
	told   uint32 // checksum in the trailer

	nlit, ndist, npre int
	lens              [maxLit + maxDist]uint8
	pre               [1 << preBits]uint32
	leastPre          uint
	*codes            // of the block
	dynamicCodes      codes
}

// codes are those of literals and lengths, and of distances.
type codes struct {
	lit  [litSize]uint32
	dist [distSize]uint32
	// Bits that compress/flate reads at once. An error says how many bytes it has read.
	leastLit, leastDist uint
}

// fixed are the codes of the fixed block type.
var fixed = fixedCodes()

// The order in which a block has the lengths of the code of lengths (RFC 1951, 3.2.7).
var preOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

func newMembers(body io.Reader) *members {
	return &members{body: body, in: make([]byte, firstInput), out: make([]byte, firstOutput)}
}

// Read implements [io.Reader].
func (r *members) Read(p []byte) (int, error) {
	for r.read == r.write {
		if r.err != nil {
			return 0, r.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		if r.exact != nil {
			return r.exact.Read(p)
		}
		for r.step() {
		}
		if r.read == r.write && r.err == nil && r.exact == nil {
			r.fill()
		}
	}
	n := copy(p, r.out[r.read:r.write])
	r.read += n
	return n, nil
}

// fill reads from the body. All of in has been taken.
func (r *members) fill() {
	if r.bodyErr != nil {
		r.err = r.bodyErr
		if errors.Is(r.err, io.EOF) && (r.phase != phaseHeader || r.count > 0) {
			r.err = io.ErrUnexpectedEOF
		}
		return
	}
	r.passed += int64(r.end)
	if r.end == len(r.in) && r.end < mostInput {
		r.in = make([]byte, 2*len(r.in))
	}
	r.at, r.end = 0, 0
	for range mostEmptyReads {
		if r.end, r.bodyErr = r.body.Read(r.in); r.end > 0 || r.bodyErr != nil {
			return
		}
	}
	r.bodyErr = io.ErrNoProgress
}

// need makes n at least k, k ≤ 56, if the input has as many bits.
func (r *members) need(k uint) bool { return r.n >= k || r.more(k) }

func (r *members) more(k uint) bool {
	if r.at <= r.end-8 {
		r.at, r.bits, r.n = refill(r.in, r.at, r.bits, r.n)
		return true
	}
	for r.n < k {
		if r.at == r.end {
			return false
		}
		r.bits |= uint64(r.in[r.at]) << (r.n & 63)
		r.at++
		r.n += 8
	}
	return true
}

// refill makes n 56 to 63, from the word at in[at:]. Only the lowest six bits of n count.
func refill(in []byte, at int, bits uint64, n uint) (int, uint64, uint) {
	return at + int(^n&63>>3), bits | word.Uint64(in[at:at+8:at+8])<<(n&63), n | 56
}

func (r *members) take(k uint) uint64 {
	v := r.bits & (1<<k - 1)
	r.bits >>= k
	r.n -= k
	return v
}

// room makes room for k bytes of output, if what was decoded is read or the buffer may grow.
func (r *members) room(k int) bool {
	switch {
	case r.write+k <= len(r.out):
	case len(r.out) < mostOutput:
		out := make([]byte, min(max(2*len(r.out), r.write+k), mostOutput))
		copy(out, r.out[:r.write])
		r.out = out
		return r.room(k)
	case r.read < r.write:
		return false
	default:
		r.add()
		moved := r.write - window
		copy(r.out, r.out[moved:r.write])
		r.write, r.read, r.summed, r.start = window, window, window, r.start-moved
	}
	return true
}

// add adds the output to the checksum.
func (r *members) add() {
	r.sum = crc32.Update(r.sum, crc32.IEEETable, r.out[r.summed:r.write])
	r.size += uint32(r.write - r.summed)
	r.summed = r.write
}

// position is the number of bits of the body that were taken.
func (r *members) position() int64 { return 8*(r.passed+int64(r.at)) - int64(r.n) }

// corrupt ends the stream. The error is that of compress/flate, which has read all bytes of the next k bits.
func (r *members) corrupt(k uint) bool {
	r.err = flate.CorruptInputError((r.position() - r.began + int64(k) + 7) / 8)
	return false
}

func (r *members) fail(err error) bool {
	r.err = err
	return false
}

// step decodes what comes next. It returns false if that takes more of the body, if the output has to be read
// first, or if the stream has ended.
func (r *members) step() bool {
	switch r.phase {
	case phaseSymbols:
		r.fast()
		return r.symbols()
	case phaseBlock:
		return r.block()
	case phaseStored:
		if !r.need(32) {
			return false
		}
		if v := uint32(r.bits); v>>16 != ^v&0xffff {
			return r.corrupt(32)
		}
		if r.count = int(r.take(32) & 0xffff); r.count > 0 {
			r.phase = phaseCopy
		} else {
			r.endBlock()
		}
		return true
	case phaseCopy:
		return r.copyStored()
	case phaseDynamic:
		return r.dynamic()
	case phasePre:
		return r.preLengths()
	case phaseLengths:
		return r.lengths()
	case phaseCRC:
		if !r.need(32) {
			return false
		}
		r.told = uint32(r.take(32))
		r.phase = phaseSize
		return true
	case phaseSize:
		if !r.need(32) {
			return false
		}
		r.add()
		if uint32(r.take(32)) != r.size || r.told != r.sum {
			return r.fail(gzip.ErrChecksum)
		}
		r.phase, r.count = phaseHeader, 0
		return true
	default:
		return r.memberHeader()
	}
}

// moreHeader are the flags of a header with more than ten bytes (RFC 1952, 2.3.1).
const moreHeader = 1<<1 | 1<<2 | 1<<3 | 1<<4

// memberHeader takes one byte of a member's header.
func (r *members) memberHeader() bool {
	if !r.need(8) {
		return false
	}
	r.header[r.count] = byte(r.take(8))
	if r.count++; r.count < len(r.header) {
		return true
	}
	if r.header[0] != 0x1f || r.header[1] != 0x8b || r.header[2] != 8 {
		return r.fail(gzip.ErrHeader)
	}
	if r.header[3]&moreHeader != 0 {
		unread := r.header[:]
		for r.n > 0 {
			unread = append(unread, byte(r.take(8)))
		}
		rest := r.body
		if r.bodyErr != nil {
			rest = failed{r.bodyErr}
		}
		r.exact = &lazy{body: io.MultiReader(bytes.NewReader(append(unread, r.in[r.at:r.end]...)), rest)}
		return false
	}
	r.phase, r.count = phaseBlock, 0
	r.sum, r.size, r.began = 0, 0, r.position()
	if r.read == r.write {
		r.read, r.write = 0, 0
	}
	r.start, r.summed = r.write, r.write
	return true
}

// failed is a reader that has failed.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// block takes the header of a block.
func (r *members) block() bool {
	if !r.need(3) {
		return false
	}
	kind := r.bits >> 1 & 3
	if kind == 3 {
		return r.corrupt(3)
	}
	r.final = r.take(3)&1 != 0
	switch kind {
	case 0:
		r.take(r.n & 7)
		r.phase = phaseStored
	case 1:
		r.codes, r.phase = fixed, phaseSymbols
	case 2:
		r.phase = phaseDynamic
	}
	return true
}

func (r *members) endBlock() {
	r.phase = phaseBlock
	if r.final {
		r.take(r.n & 7)
		r.phase = phaseCRC
	}
}

func (r *members) copyStored() bool {
	if !r.room(1) {
		return false
	}
	if r.n > 0 {
		r.out[r.write] = byte(r.take(8))
		r.write++
		r.count--
	} else {
		r.bits = 0
		n := copy(r.out[r.write:], r.in[r.at:min(r.end, r.at+r.count)])
		if n == 0 {
			return false
		}
		r.at, r.write, r.count = r.at+n, r.write+n, r.count-n
	}
	if r.count == 0 {
		r.endBlock()
	}
	return true
}

// fixedCodes returns the codes of the fixed block type (RFC 1951, 3.2.6).
func fixedCodes() *codes {
	c := &codes{}
	var lens [288]uint8
	for s := range lens {
		switch {
		case s < 144 || s >= 280:
			lens[s] = 8
		case s < 256:
			lens[s] = 9
		default:
			lens[s] = 7
		}
	}
	c.leastLit, _ = build(c.lit[:], lens[:], litSymbols[:], litBits)
	for s := range 32 {
		lens[s] = 5
	}
	c.leastDist, _ = build(c.dist[:], lens[:32], distSymbols[:], distBits)
	return c
}

// dynamic takes the numbers of lengths.
func (r *members) dynamic() bool {
	if !r.need(14) {
		return false
	}
	r.nlit, r.ndist, r.npre = int(r.bits&31)+257, int(r.bits>>5&31)+1, int(r.bits>>10&15)+4
	if r.nlit > maxLit || r.ndist > maxDist {
		return r.corrupt(14)
	}
	r.take(14)
	r.phase, r.count, r.codes = phasePre, 0, &r.dynamicCodes
	clear(r.lens[:len(preOrder)])
	return true
}

func (r *members) preLengths() bool {
	for ; r.count < r.npre; r.count++ {
		if !r.need(3) {
			return false
		}
		r.lens[preOrder[r.count]] = uint8(r.take(3))
	}
	lens := r.lens[:len(preOrder)]
	var ok bool
	if r.leastPre, ok = build(r.pre[:], lens, preSymbols[:], preBits); !ok {
		return r.corrupt(0)
	}
	r.phase, r.count = phaseLengths, 0
	return true
}

// lengths takes the lengths of both codes.
func (r *members) lengths() bool {
	const most = preBits + 7
	bits, n := r.bits, r.n
	for total := r.nlit + r.ndist; r.count < total; r.bits, r.n = bits, n {
		if n < most {
			r.need(most)
			bits, n = r.bits, r.n
		}
		e := r.pre[bits&(1<<preBits-1)]
		size := uint(e & 0xff)
		switch {
		case e&entrySpecial != 0:
			if n < r.leastPre {
				return false
			}
			return r.corrupt(r.leastPre)
		case size > n:
			return false
		}
		symbol := e >> 16
		if symbol < 16 {
			bits, n = bits>>size, n-size
			r.lens[r.count] = uint8(symbol)
			r.count++
			continue
		}
		// The last length, or zero, is repeated.
		length, repeat, extra := uint8(0), 3, uint(3)
		switch symbol {
		case 16:
			if extra = 2; r.count == 0 {
				return r.corrupt(size)
			}
			length = r.lens[r.count-1]
		case 18:
			repeat, extra = 11, 7
		}
		if size+extra > n {
			return false
		}
		if repeat += int(bits >> size & (1<<extra - 1)); r.count+repeat > total {
			return r.corrupt(size + extra)
		}
		bits, n = bits>>(size+extra), n-size-extra
		for range repeat {
			r.lens[r.count] = length
			r.count++
		}
	}
	lit, dist := r.lens[:r.nlit], r.lens[r.nlit:r.nlit+r.ndist]
	var ok, okDist bool
	r.leastLit, ok = build(r.lit[:], lit, litSymbols[:], litBits)
	r.leastDist, okDist = build(r.dist[:], dist, distSymbols[:], distBits)
	if !ok || !okDist {
		return r.corrupt(0)
	}
	// compress/flate reads as many bits at once as the end of the block has.
	r.leastLit = max(r.leastLit, uint(lit[endOfBlock]))
	r.phase = phaseSymbols
	return true
}

// symbols decodes literals and matches one by one, up to the last bit of the input. It is the end of the fast
// loop, whose symbol may be one that it leaves here.
func (r *members) symbols() bool {
	for first := true; ; first = false {
		if !r.room(roomOutput) {
			return false
		}
		if !first && r.end-r.at >= roomInput {
			return true
		}
		// A match has at most 48 bits.
		if r.n < 48 {
			r.need(48)
		}
		bits := r.bits
		e, link := r.lit[bits&(1<<litBits-1)], uint(0)
		if e&entryLink != 0 {
			link = litBits
			e = r.lit[(e>>16+uint32(bits>>litBits)&(1<<(e>>8&15)-1))&(litSize-1)]
		}
		code, size := link+uint(e>>8&15), link+uint(e&0xff)
		least := max(code, r.leastLit)
		switch {
		case least > r.n:
			return false
		case e&entryLiteral != 0:
			r.take(code)
			r.out[r.write] = byte(e >> 16)
			r.write++
			continue
		case e&entryEnd != 0:
			r.take(code)
			r.endBlock()
			return true
		case e&entrySpecial != 0:
			return r.corrupt(least)
		case size > r.n:
			return false
		}
		length := int(e>>16) + int(bits&(1<<size-1)>>code)
		bits, done := bits>>size, size

		e, link = r.dist[bits&(1<<distBits-1)], 0
		if e&entryLink != 0 {
			link = distBits
			e = r.dist[(e>>16+uint32(bits>>distBits)&(1<<(e>>8&15)-1))&(distSize-1)]
		}
		code, size = link+uint(e>>8&15), link+uint(e&0xff)
		least = max(least, done+max(code, r.leastDist))
		switch {
		case least > r.n:
			return false
		case e&entrySpecial != 0:
			return r.corrupt(least)
		case done+size > r.n:
			return false
		}
		back := int(e>>16) + int(bits&(1<<size-1)>>code)
		if back > r.write-r.start {
			return r.corrupt(max(least, done+size))
		}
		r.take(done + size)
		for range length {
			r.out[r.write] = r.out[r.write-back]
			r.write++
		}
	}
}

// fast decodes literals and matches while there is room for whole rounds. It leaves the end of the block and
// errors to symbols. e is the entry of the next symbol: it is loaded before the bits are filled up, and does not
// wait for that. n loses all bits of an entry, of which the lowest six are those to consume.
func (r *members) fast() {
	in, out := r.in[:r.end], r.out
	at, write := r.at, r.write
	lit, dist := &r.lit, &r.dist
	if at > len(in)-roomInput {
		return
	}
	at, bits, n := refill(in, at, r.bits, r.n)
	e := lit[bits&(1<<litBits-1)]
round:
	for at <= len(in)-roomInput && write <= len(out)-roomOutput {
		for left := 3; int32(e) < 0; { // literals of at most 30 bits of 56
			bits >>= e & 63
			n -= uint(e)
			out[write] = byte(e >> 16)
			write++
			e = lit[bits&(1<<litBits-1)]
			if left--; left == 0 {
				at, bits, n = refill(in, at, bits, n)
				continue round
			}
		}
		held, heldN := bits, n
		if e&entrySpecial != 0 {
			if e&entryLink == 0 {
				break
			}
			bits >>= litBits
			n -= litBits
			e = lit[(e>>16+uint32(bits)&(1<<(e>>8&15)-1))&(litSize-1)]
			if int32(e) < 0 {
				bits >>= e & 63
				n -= uint(e)
				out[write] = byte(e >> 16)
				write++
				e = lit[bits&(1<<litBits-1)]
				at, bits, n = refill(in, at, bits, n)
				continue
			}
			if e&entrySpecial != 0 {
				bits, n = held, heldN
				break
			}
		}
		length := int(e>>16) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
		bits >>= e & 63
		n -= uint(e)
		// At least 56-20-20 = 16 bits are left: a distance may take 28.
		e = dist[bits&(1<<distBits-1)]
		used := at
		at, bits, n = refill(in, at, bits, n)
		if e&entryLink != 0 {
			bits >>= distBits
			n -= distBits
			e = dist[(e>>16+uint32(bits)&(1<<(e>>8&15)-1))&(distSize-1)]
		}
		back := int(e>>16) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
		if e&entrySpecial != 0 || back > write-r.start {
			at, bits, n = used, held, heldN
			break
		}
		bits >>= e & 63
		n -= uint(e)
		e = lit[bits&(1<<litBits-1)]
		at, bits, n = refill(in, at, bits, n)
		end := write + length
		if back < 16 {
			for ; write < end; write++ {
				out[write] = out[write-back]
			}
			continue
		}
		// Up to 15 bytes more are copied, and written again later. Most matches have at most 16.
		*chunk(out, write) = *chunk(out, write-back)
		for write += 16; write < end; write += 16 {
			*chunk(out, write) = *chunk(out, write-back)
		}
		write = end
	}
	r.at, r.write, r.bits, r.n = at, write, bits, n&63
}

func chunk(b []byte, i int) *[16]byte { return (*[16]byte)(b[i : i+16 : i+16]) }
