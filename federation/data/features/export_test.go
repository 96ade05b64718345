package features

import "time"

// StorageWith is Extractor.Storage with another function for free bytes.
var StorageWith = Extractor.storage

// ShardOf is the method of this name.
var ShardOf = Extractor.shard

var BatchWithin = batchWithin

func NewMeter(lanes int) *meter { return &meter{lanes: lanes} }

func (m *meter) Begin() (end func()) { return m.begin() }

func (m *meter) Busy() time.Duration { return m.busy }
