// What the HBase journal uses of the Thrift2 gateway, and nothing else.
//
// Method names, field numbers and types are the gateway's own (HBase 2.6); they are what travels. Fields that are left
// out are skipped when they arrive, and have the server's default when they are missing. generate.sh makes the Go code.

namespace go thrift2

// ---- failures

// Whatever goes wrong behind the gateway: region server away, no rights, no such table.
exception TIOError {
  1: optional string message
}

// ---- cells

// A cell's name; without qualifier a whole family.
struct TColumn {
  1: required binary family
  2: optional binary qualifier
  3: optional i64 timestamp
}

// A cell. A timestamp that is missing from a put is set by the region server.
struct TColumnValue {
  1: required binary family
  2: required binary qualifier
  3: required binary value
  4: optional i64 timestamp
}

// A row, or a part of one. No row: nothing was found.
struct TResult {
  1: optional binary row
  2: required list<TColumnValue> columnValues
}

// ---- reading

struct TGet {
  1: required binary row
  2: optional list<TColumn> columns
  6: optional binary filterString
  12: optional i32 storeLimit // cells of each family, at most
}

struct TScan {
  1: optional binary startRow // included
  2: optional binary stopRow // not included
  3: optional list<TColumn> columns
  4: optional i32 caching // rows that the gateway fetches at a time
  11: optional bool reversed
  15: optional i32 limit
}

// ---- writing

enum TDurability {
  USE_DEFAULT = 0
  SKIP_WAL = 1
  ASYNC_WAL = 2
  SYNC_WAL = 3
  FSYNC_WAL = 4
}

// DELETE_COLUMNS: all versions of a column.
enum TDeleteType {
  DELETE_COLUMN = 0
  DELETE_COLUMNS = 1
  DELETE_FAMILY = 2
}

struct TPut {
  1: required binary row
  2: required list<TColumnValue> columnValues
  6: optional TDurability durability
}

struct TDelete {
  1: required binary row
  2: optional list<TColumn> columns
  4: optional TDeleteType deleteType = TDeleteType.DELETE_COLUMNS
  7: optional TDurability durability
}

union TMutation {
  1: TPut put
  2: TDelete deleteSingle
}

// All of one row, and applied as one.
struct TRowMutations {
  1: required binary row
  2: required list<TMutation> mutations
}

enum TCompareOperator {
  LESS = 0
  LESS_OR_EQUAL = 1
  EQUAL = 2
  NOT_EQUAL = 3
}

// ---- tables

struct TTableName {
  1: optional binary ns
  2: required binary qualifier
}

struct TColumnFamilyDescriptor {
  1: required binary name
  10: optional i32 maxVersions
  13: optional i32 timeToLive // seconds
}

struct TTableDescriptor {
  1: required TTableName tableName
  2: optional list<TColumnFamilyDescriptor> columns
  4: optional TDurability durability // what USE_DEFAULT means
}

enum TThriftServerType {
  ONE = 1
  TWO = 2
}

service THBaseService {
  TThriftServerType getThriftServerType()

  bool tableExists(1: TTableName tableName) throws (1: TIOError io)
  void createTable(1: required TTableDescriptor desc, 2: optional list<binary> splitKeys) throws (1: TIOError io)
  TTableDescriptor getTableDescriptor(1: required TTableName table) throws (1: TIOError io)
  void disableTable(1: required TTableName tableName) throws (1: TIOError io)
  void deleteTable(1: required TTableName tableName) throws (1: TIOError io)

  TResult get(1: required binary table, 2: required TGet tget) throws (1: TIOError io)
  list<TResult> getMultiple(1: required binary table, 2: required list<TGet> tgets) throws (1: TIOError io)
  // Opens a scanner, reads up to numRows rows, and closes it.
  list<TResult> getScannerResults(1: required binary table, 2: required TScan tscan, 3: i32 numRows) throws (1: TIOError io)

  void put(1: required binary table, 2: required TPut tput) throws (1: TIOError io)
  void deleteSingle(1: required binary table, 2: required TDelete tdelete) throws (1: TIOError io)

  // True: the cell compared as asked, and all mutations were applied. An empty value asks for an absent cell.
  bool checkAndMutate(
    1: required binary table
    2: required binary row
    3: required binary family
    4: required binary qualifier
    5: required TCompareOperator compareOperator
    6: binary value
    7: required TRowMutations rowMutations
  ) throws (1: TIOError io)
}
