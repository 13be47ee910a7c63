import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.paimon.Snapshot;
import org.apache.paimon.append.AppendCompactCoordinator;
import org.apache.paimon.append.AppendCompactTask;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.deletionvectors.BitmapDeletionVector;
import org.apache.paimon.deletionvectors.DeletionVector;
import org.apache.paimon.deletionvectors.append.AppendDeleteFileMaintainer;
import org.apache.paimon.deletionvectors.append.BaseAppendDeleteFileMaintainer;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.index.IndexFileMeta;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.manifest.FileKind;
import org.apache.paimon.manifest.IndexManifestEntry;
import org.apache.paimon.operation.BaseAppendFileStoreWrite;
import org.apache.paimon.options.ExpireConfig;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.RowKind;

/**
 * Tables by Paimon's own writer: a command per line of standard input, an answer per line.
 *
 * The argument is the warehouse. "rows" answers with the rows of each snapshot that is left, in the
 * order of "id", as Paimon reads them.
 */
@SuppressWarnings("try") // close() may throw InterruptedException, which ends the program
public final class PaimonTables {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Catalog catalog;
  private final Path temporary;

  private PaimonTables(String warehouse) {
    this.catalog = CatalogFactory.createCatalog(CatalogContext.create(new Path(warehouse)));
    this.temporary = new Path(warehouse, "tmp");
  }

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PaimonTables tables = new PaimonTables(args[0]);
    tables.catalog.createDatabase("db", true);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.println(JSON.writeValueAsString(tables.done(JSON.readTree(line))));
    }
    out.flush();
  }

  private ObjectNode done(JsonNode given) throws Exception {
    Identifier name = Identifier.create("db", given.get("table").asText());
    ObjectNode answer = JSON.createObjectNode();
    if (given.get("op").asText().equals("create")) {
      catalog.createTable(name, schema(given), false);
      return answer;
    }
    FileStoreTable table = (FileStoreTable) catalog.getTable(name);
    switch (given.get("op").asText()) {
      case "append":
        write(table, given.get("from").asLong(), given.get("to").asLong(), RowKind.INSERT);
        break;
      case "delete":
        if (table.primaryKeys().isEmpty()) {
          delete(table, given.get("from").asLong(), given.get("to").asLong());
        } else {
          write(table, given.get("from").asLong(), given.get("to").asLong(), RowKind.DELETE);
        }
        break;
      case "compact":
        compact(table);
        break;
      case "add":
        SchemaChange added = SchemaChange.addColumn(given.get("column").asText(), DataTypes.INT());
        catalog.alterTable(name, List.of(added), false);
        break;
      case "rename":
        SchemaChange renamed =
            SchemaChange.renameColumn(given.get("column").asText(), given.get("to").asText());
        catalog.alterTable(name, List.of(renamed), false);
        break;
      case "tag":
        table.createTag(given.get("tag").asText());
        break;
      case "rollback":
        table.rollbackTo(given.get("to").asLong());
        break;
      case "expire":
        int keep = given.get("keep").asInt();
        ExpireConfig.Builder config = ExpireConfig.builder().snapshotTimeRetain(Duration.ZERO);
        config.snapshotRetainMin(keep).snapshotRetainMax(keep);
        table.newExpireSnapshots().config(config.build()).expire();
        break;
      case "rows":
        Iterator<Snapshot> snapshots = table.snapshotManager().snapshots();
        while (snapshots.hasNext()) {
          String id = Long.toString(snapshots.next().id());
          addRows(answer.putArray(id), table.copy(Map.of("scan.snapshot-id", id)));
        }
        addRows(answer.putArray("newest"), table);
        break;
      default:
        throw new IllegalArgumentException(given.toString());
    }
    return answer;
  }

  private static Schema schema(JsonNode given) {
    Schema.Builder built = Schema.newBuilder();
    built.column("id", DataTypes.BIGINT().notNull()).column("k", DataTypes.STRING());
    built.column("small", DataTypes.INT()).column("at", DataTypes.TIMESTAMP(6));
    built.column("day", DataTypes.DATE()).column("money", DataTypes.DECIMAL(20, 2));
    built.column("x", DataTypes.DOUBLE());
    DataField number = DataTypes.FIELD(100, "n", DataTypes.FLOAT());
    DataField text = DataTypes.FIELD(101, "t", DataTypes.STRING());
    built.column("s", DataTypes.ROW(number, text));
    given.path("key").forEach(each -> built.primaryKey(List.of(each.asText().split(","))));
    given.path("partitions").forEach(each -> built.partitionKeys(each.asText()));
    given
        .path("options")
        .fields()
        .forEachRemaining(each -> built.option(each.getKey(), each.getValue().asText()));
    return built.build();
  }

  private static GenericRow row(long id, int fields, RowKind kind) {
    GenericRow row = new GenericRow(kind, fields);
    row.setField(0, id);
    row.setField(1, id % 5 == 4 ? null : BinaryString.fromString("k " + id % 5));
    row.setField(2, id % 7 == 0 ? null : (int) (id * 10));
    row.setField(3, Timestamp.fromEpochMillis((id - 20) * 1_001, 123_000));
    row.setField(4, (int) (20_000 + id));
    row.setField(5, Decimal.fromBigDecimal(new BigDecimal("90071992547409.93").add(
        BigDecimal.valueOf(id)), 20, 2));
    row.setField(6, id % 11 == 10 ? Double.NaN : id / 4.0);
    if (id % 6 < 5) {
      BinaryString text = BinaryString.fromString("a long text with the number " + id);
      row.setField(7, GenericRow.of(id / 2f, text));
    }
    for (int at = 8; at < fields; at++) {
      row.setField(at, (int) -id);
    }
    return row;
  }

  private void write(FileStoreTable table, long from, long to, RowKind kind) throws Exception {
    BatchWriteBuilder builder = table.newBatchWriteBuilder();
    try (BatchTableWrite write = builder.newWrite();
        BatchTableCommit commit = builder.newCommit()) {
      write.withIOManager(IOManager.create(temporary.toUri().getPath()));
      for (long id = from; id < to; id++) {
        write.write(row(id, table.rowType().getFieldCount(), kind));
      }
      commit.commit(write.prepareCommit());
    }
  }

  /** Deletes by deletion vectors, as an engine does: rows by their positions in the files. */
  private void delete(FileStoreTable table, long from, long to) throws Exception {
    Map<BinaryRow, AppendDeleteFileMaintainer> maintained = new HashMap<>();
    ReadBuilder builder = table.newReadBuilder();
    for (Split split : builder.newScan().plan().splits()) {
      DataSplit data = (DataSplit) split;
      for (DataFileMeta file : data.dataFiles()) {
        DataSplit one =
            DataSplit.builder()
                .withSnapshot(data.snapshotId())
                .withPartition(data.partition())
                .withBucket(data.bucket())
                .withBucketPath(data.bucketPath())
                .withTotalBuckets(data.totalBuckets())
                .withDataFiles(List.of(file))
                .rawConvertible(true)
                .build();
        DeletionVector deleted = new BitmapDeletionVector();
        long[] at = {0};
        try (RecordReader<InternalRow> reader = builder.newRead().createReader(one)) {
          reader.forEachRemaining(
              row -> {
                if (from <= row.getLong(0) && row.getLong(0) < to) {
                  deleted.delete(at[0]);
                }
                at[0]++;
              });
        }
        if (!deleted.isEmpty()) {
          maintained
              .computeIfAbsent(
                  data.partition(),
                  partition ->
                      BaseAppendDeleteFileMaintainer.forUnawareAppend(
                          table.store().newIndexFileHandler(),
                          table.snapshotManager().latestSnapshot(),
                          partition))
              .notifyNewDeletionVector(file.fileName(), deleted);
        }
      }
    }
    List<CommitMessage> messages = new ArrayList<>();
    for (Map.Entry<BinaryRow, AppendDeleteFileMaintainer> each : maintained.entrySet()) {
      List<IndexFileMeta> added = new ArrayList<>();
      List<IndexFileMeta> removed = new ArrayList<>();
      for (IndexManifestEntry entry : each.getValue().persist()) {
        (entry.kind() == FileKind.ADD ? added : removed).add(entry.indexFile());
      }
      DataIncrement increment =
          new DataIncrement(List.of(), List.of(), List.of(), added, removed);
      CompactIncrement none = CompactIncrement.emptyIncrement();
      messages.add(new CommitMessageImpl(each.getKey(), 0, -1, increment, none));
    }
    commit(table, messages);
  }

  private void compact(FileStoreTable table) throws Exception {
    if (!table.primaryKeys().isEmpty()) {
      BatchWriteBuilder builder =
          table.copy(Map.of("write-only", "false")).newBatchWriteBuilder();
      try (BatchTableWrite write = builder.newWrite();
          BatchTableCommit commit = builder.newCommit()) {
        write.withIOManager(IOManager.create(temporary.toUri().getPath()));
        for (BinaryRow partition : table.newReadBuilder().newScan().listPartitions()) {
          for (int bucket = 0; bucket < table.bucketSpec().getNumBuckets(); bucket++) {
            write.compact(partition, bucket, true);
          }
        }
        commit.commit(write.prepareCommit());
      }
      return;
    }
    List<CommitMessage> messages = new ArrayList<>();
    BaseAppendFileStoreWrite write = (BaseAppendFileStoreWrite) table.store().newWrite("tests");
    for (AppendCompactTask task : new AppendCompactCoordinator(table, false).run()) {
      messages.add(task.doCompact(table, write));
    }
    write.close();
    commit(table, messages);
  }

  private static void commit(FileStoreTable table, List<CommitMessage> messages) throws Exception {
    if (!messages.isEmpty()) {
      try (BatchTableCommit commit = table.newBatchWriteBuilder().newCommit()) {
        commit.commit(messages);
      }
    }
  }

  private static void addRows(ArrayNode into, FileStoreTable table) throws Exception {
    ReadBuilder builder = table.newReadBuilder();
    List<Split> splits = builder.newScan().plan().splits();
    int fields = table.rowType().getFieldCount();
    try (RecordReader<InternalRow> reader = builder.newRead().createReader(splits)) {
      reader.forEachRemaining(
          row -> {
            ArrayNode found = into.addArray();
            found.add(row.getLong(0));
            found.add(row.isNullAt(1) ? null : row.getString(1).toString());
            if (row.isNullAt(2)) {
              found.addNull();
            } else {
              found.add(row.getInt(2));
            }
            found.add(row.getTimestamp(3, 6).toMicros());
            found.add(row.getInt(4));
            found.add(row.getDecimal(5, 20, 2).toString());
            found.add(Double.toString(row.getDouble(6)));
            InternalRow inner = row.isNullAt(7) ? null : row.getRow(7, 2);
            found.add(inner == null ? null : Float.toString(inner.getFloat(0)));
            found.add(inner == null ? null : inner.getString(1).toString());
            for (int at = 8; at < fields; at++) {
              if (row.isNullAt(at)) {
                found.addNull();
              } else {
                found.add(row.getInt(at));
              }
            }
          });
    }
  }
}
