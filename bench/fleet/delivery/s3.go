package delivery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Store keeps parcels as objects of an S3-compatible store,
// <prefix>/<run>/<index>-of-<shards>-<id>.wlshard. It is named
//
//	s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION&lookup=path|dns]
//
// What the URL leaves out comes from the standard variables: AWS_ENDPOINT_URL_S3 or
// AWS_ENDPOINT_URL, AWS_REGION or AWS_DEFAULT_REGION; without an endpoint it is Amazon's.
// Buckets are addressed by path, except Amazon's own, unless lookup says otherwise.
//
// Credentials are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; where
// there are none, those of the pod's web identity or of the machine. They never stand in
// the URL. Writing takes s3:PutObject, reading s3:ListBucket and s3:GetObject.
type S3Store struct {
	client         *minio.Client
	bucket, prefix string
}

// place is where an S3-compatible store is.
type place struct {
	bucket, prefix   string
	endpoint, region string
	secure           bool
	lookup           minio.BucketLookupType
}

// amazon is the endpoint where none is named.
const amazon = "https://s3.amazonaws.com"

// parseS3 reads the URL of a store. The error wraps [ErrWay].
func parseS3(text string, getenv func(string) string) (place, error) {
	bad := func(format string, args ...any) (place, error) {
		return place{}, fmt.Errorf("%w: s3=%s: %s", ErrWay, redact(text), fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return bad("it is no URL")
	case u.Scheme != "s3" || u.Host == "":
		return bad("want s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION&lookup=path|dns]")
	case u.User != nil:
		return bad("credentials are told by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, not by the URL")
	}
	p := place{bucket: u.Host, prefix: strings.Trim(u.Path, "/")}
	query := u.Query()
	for key := range query {
		if !slices.Contains([]string{"endpoint", "region", "lookup"}, key) {
			return bad("it has no %q (have endpoint, region, lookup)", key)
		}
	}
	from := cmp.Or(query.Get("endpoint"), getenv("AWS_ENDPOINT_URL_S3"), getenv("AWS_ENDPOINT_URL"))
	e, err := url.Parse(cmp.Or(from, amazon))
	if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || strings.Trim(e.Path, "/") != "" || e.User != nil {
		return bad("endpoint %q: want http://HOST[:PORT] or https://HOST[:PORT]", from)
	}
	p.endpoint, p.secure = e.Host, e.Scheme == "https"
	p.region = cmp.Or(query.Get("region"), getenv("AWS_REGION"), getenv("AWS_DEFAULT_REGION"))
	switch lookup := query.Get("lookup"); {
	case lookup == "path", lookup == "" && from != "":
		p.lookup = minio.BucketLookupPath
	case lookup == "dns":
		p.lookup = minio.BucketLookupDNS
	case lookup != "":
		return bad("lookup %q (allowed: path, dns)", lookup)
	}
	if from != "" {
		// Others than Amazon have one, and it needs no name.
		p.region = cmp.Or(p.region, "us-east-1")
	}
	return p, nil
}

// redact takes credentials out of a URL that is told.
func redact(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Redacted()
	}
	return "…"
}

// OpenS3 opens the store of a URL; nothing is sent. getenv is os.Getenv. The error wraps
// [ErrWay].
func OpenS3(text string, getenv func(string) string) (*S3Store, error) {
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	p, err := parseS3(text, getenv)
	if err != nil {
		return nil, err
	}
	creds := credentials.NewIAM("")
	if id, secret := getenv("AWS_ACCESS_KEY_ID"), getenv("AWS_SECRET_ACCESS_KEY"); id != "" || secret != "" {
		creds = credentials.NewStaticV4(id, secret, getenv("AWS_SESSION_TOKEN"))
	}
	client, err := minio.New(p.endpoint, &minio.Options{Creds: creds, Secure: p.secure, Region: p.region, BucketLookup: p.lookup})
	if err != nil {
		return nil, fmt.Errorf("%w: s3=%s: %w", ErrWay, redact(text), err)
	}
	return &S3Store{client: client, bucket: p.bucket, prefix: p.prefix}, nil
}

// Deliver implements [Sink]. An object is there whole or not at all. What the store
// refuses for good is not tried again.
func (s *S3Store) Deliver(ctx context.Context, p Parcel) error {
	name := s.name(fileName(p))
	_, err := s.client.PutObject(ctx, s.bucket, name, bytes.NewReader(p.Data), int64(len(p.Data)), minio.PutObjectOptions{
		ContentType: "application/octet-stream",

		PartSize: 16 << 20,
	})
	if err != nil {
		return fmt.Errorf("s3://%s/%s: %w", s.bucket, name, err)
	}
	return nil
}

func (s *S3Store) name(file string) string {
	if s.prefix == "" {
		return file
	}
	return s.prefix + "/" + file
}

// Read implements [Reader]. Requests: one for 1,000 names, and one for each parcel of
// the run.
func (s *S3Store) Read(ctx context.Context, run string, take func(Parcel) error) ([]Damage, error) {
	// Listing goes on in the background until this ends.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wanted := runs{asked: run}
	prefix := s.name("")
	if run != "" {
		prefix = s.name(run + "/")
	}
	var damaged []Damage
	for o := range s.client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return damaged, fmt.Errorf("s3://%s/%s: %w", s.bucket, prefix, o.Err)
		}
		if !strings.HasSuffix(o.Key, fileEnding) {
			continue
		}
		data, err := s.get(ctx, o.Key)
		switch {
		case gone(err):
			continue
		case err != nil:
			return damaged, fmt.Errorf("s3://%s/%s: %w", s.bucket, o.Key, err)
		}
		p, err := Decode(data)
		if err != nil {
			damaged = append(damaged, Damage{Where: "s3://" + s.bucket + "/" + o.Key, Of: unknown(), Why: err.Error()})
			continue
		}
		if !wanted.wants(p.Run) {
			continue
		}
		if err := wanted.err(); err != nil {
			return damaged, err
		}
		if err := take(p); err != nil {
			return damaged, err
		}
	}
	return damaged, ctx.Err()
}

func (s *S3Store) get(ctx context.Context, name string) ([]byte, error) {
	o, err := s.client.GetObject(ctx, s.bucket, name, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(o, maxContents+1))
	if err == nil && len(data) > maxContents {
		err = ErrTooLarge
	}
	return data, errors.Join(err, o.Close())
}

// gone reports whether an object was taken away since it was listed.
func gone(err error) bool {
	return err != nil && minio.ToErrorResponse(err).StatusCode == http.StatusNotFound
}
