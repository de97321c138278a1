package trace

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
)

// Magic numbers of zstd: of a data frame, and of a skippable frame, which has sixteen values.
const (
	zstdMagic     = 0xFD2FB528
	skippableBase = 0x184D2A50
	chunkMagic    = skippableBase + 7
)

// Tags of the skippable frames.
const (
	tagHeader  = "WLTh"
	tagBlock   = "WLTb"
	tagTrailer = "WLTi"
)

// Sizes in bytes.
const (
	frontSize = 8 // magic and size
	tagSize   = 4
	tailSize  = 8 // length and CRC
	// overhead is the size of a chunk without its JSON.
	overhead = frontSize + tagSize + tailSize
	// maxHead limits the JSON of a header or block head, maxTrailer that of a trailer: older
	// traces list their blocks in it.
	maxHead    = 1 << 20
	maxTrailer = 256 << 20
	// maxBlock limits a decompressed block: one block and the longest line.
	maxBlock = maxLine + 4<<20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// blockHead describes the block that follows it.
type blockHead struct {
	// Block is the number of the block, from 1.
	Block int `json:"block"`
	// Line is the number of the first line, from 1.
	Line int `json:"line"`
	// Lines is the number of lines, Bytes their size, and Size the compressed size.
	Lines int `json:"lines"`
	Bytes int `json:"bytes"`
	Size  int `json:"size"`
	// CRC is the CRC-32C of the compressed block.
	CRC uint32 `json:"crc32c"`
	// Resources are the resources of the lines.
	Resources []Resource `json:"resources"`
}

// trailer ends a complete trace. It has the number and the size of all lines.
type trailer struct {
	Lines int   `json:"lines"`
	Bytes int64 `json:"bytes"`
}

// appendChunk appends a skippable frame with v as JSON.
func appendChunk(b []byte, tag string, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return b, err
	}
	b = binary.LittleEndian.AppendUint32(b, chunkMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(tagSize+len(body)+tailSize))
	start := len(b)
	b = append(b, tag...)
	b = append(b, body...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), nil
}

// chunkFront reads magic, size and tag. size is that of the whole chunk. ok is false if b does
// not start with a chunk.
func chunkFront(b []byte) (tag string, size int, ok bool) {
	if len(b) < frontSize+tagSize || binary.LittleEndian.Uint32(b) != chunkMagic {
		return "", 0, false
	}
	n := int64(binary.LittleEndian.Uint32(b[4:]))
	tag = string(b[frontSize : frontSize+tagSize])
	limit := int64(maxHead)
	switch tag {
	case tagHeader, tagBlock:
	case tagTrailer:
		limit = maxTrailer
	default:
		return "", 0, false
	}
	if n < tagSize+tailSize || n-tagSize-tailSize > limit {
		return "", 0, false
	}
	return tag, frontSize + int(n), true
}

// chunkBody checks a whole chunk and decodes its JSON into v. ok is false for a wrong length
// or checksum. err is the error of the JSON.
func chunkBody(b []byte, v any) (ok bool, err error) {
	if len(b) < overhead {
		return false, nil
	}
	body := b[frontSize+tagSize : len(b)-tailSize]
	tail := b[len(b)-tailSize:]
	if int(binary.LittleEndian.Uint32(tail)) != len(body) ||
		binary.LittleEndian.Uint32(tail[4:]) != crc32.Checksum(b[frontSize:len(b)-4], castagnoli) {
		return false, nil
	}
	return true, json.Unmarshal(body, v)
}

// chunkStart is the magic number at the start of a chunk.
var chunkStart = binary.LittleEndian.AppendUint32(nil, chunkMagic)

// findChunk searches for the start of a chunk. If found is false, the search continues at that
// offset with more bytes.
func findChunk(b []byte) (at int, found bool) {
	from := 0
	for {
		i := bytes.Index(b[from:], chunkStart)
		if i < 0 {
			return max(from, len(b)-len(chunkStart)+1, 0), false
		}
		at = from + i
		if len(b)-at < frontSize+tagSize {
			return at, false
		}
		if _, _, ok := chunkFront(b[at:]); ok {
			return at, true
		}
		from = at + 1
	}
}
