import io.questdb.cairo.CairoEngine;
import io.questdb.cairo.ColumnType;
import io.questdb.cairo.CursorPrinter;
import io.questdb.cairo.DefaultCairoConfiguration;
import io.questdb.cairo.security.AllowAllSecurityContext;
import io.questdb.cairo.sql.Record;
import io.questdb.cairo.sql.RecordCursor;
import io.questdb.cairo.sql.RecordCursorFactory;
import io.questdb.cairo.sql.RecordMetadata;
import io.questdb.griffin.SqlExecutionContextImpl;
import io.questdb.std.Numbers;
import io.questdb.std.str.StringSink;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * An embedded QuestDB: one statement per line of standard input, one line of JSON for each in a
 * file. Arguments: that file, the database's directory, the directory that read_parquet may read,
 * and the rows of a row group.
 */
public final class QuestDb {
  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(args[0], StandardCharsets.UTF_8);
    DefaultCairoConfiguration settings =
        new DefaultCairoConfiguration(args[1]) {
          @Override
          public CharSequence getSqlCopyInputRoot() {
            return args[2];
          }

          @Override
          public int getPartitionEncoderParquetRowGroupSize() {
            return Integer.parseInt(args[3]);
          }
        };
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (CairoEngine engine = new CairoEngine(settings);
        SqlExecutionContextImpl context = new SqlExecutionContextImpl(engine, 1)) {
      context.with(AllowAllSecurityContext.INSTANCE);
      for (String sql = in.readLine(); sql != null; sql = in.readLine()) {
        try {
          if (sql.startsWith("SELECT")) {
            out.println(rows(engine, context, sql));
          } else {
            engine.execute(sql, context);
            out.println("{}");
          }
        } catch (Throwable error) {
          out.println("{\"error\":" + quoted(String.valueOf(error)) + "}");
        }
      }
    }
    out.close();
  }

  private static String rows(CairoEngine engine, SqlExecutionContextImpl context, String sql)
      throws Exception {
    StringBuilder json = new StringBuilder("{\"columns\":[");
    try (RecordCursorFactory factory = engine.select(sql, context);
        RecordCursor cursor = factory.getCursor(context)) {
      RecordMetadata metadata = factory.getMetadata();
      for (int column = 0; column < metadata.getColumnCount(); column++) {
        json.append(column == 0 ? "" : ",").append(quoted(metadata.getColumnName(column)));
      }
      json.append("],\"rows\":[");
      String separator = "";
      while (cursor.hasNext()) {
        Record record = cursor.getRecord();
        json.append(separator).append("[");
        separator = ",";
        for (int column = 0; column < metadata.getColumnCount(); column++) {
          json.append(column == 0 ? "" : ",").append(value(record, metadata, column));
        }
        json.append("]");
      }
    }
    return json.append("]}").toString();
  }

  private static String value(Record record, RecordMetadata metadata, int column) {
    switch (ColumnType.tagOf(metadata.getColumnType(column))) {
      case ColumnType.BOOLEAN:
        return String.valueOf(record.getBool(column));
      case ColumnType.BYTE:
        return String.valueOf(record.getByte(column));
      case ColumnType.SHORT:
        return String.valueOf(record.getShort(column));
      case ColumnType.INT:
        int narrow = record.getInt(column);
        return narrow == Numbers.INT_NULL ? "null" : String.valueOf(narrow);
      case ColumnType.LONG:
        return wide(record.getLong(column));
      case ColumnType.DATE:
        return wide(record.getDate(column));
      case ColumnType.TIMESTAMP:
        return wide(record.getTimestamp(column));
      case ColumnType.FLOAT:
        float single = record.getFloat(column);
        return Float.isNaN(single) ? "null" : quoted(Double.toString(single));
      case ColumnType.DOUBLE:
        double number = record.getDouble(column);
        return Double.isNaN(number) ? "null" : quoted(Double.toString(number));
      case ColumnType.STRING:
        return quoted(record.getStrA(column));
      case ColumnType.SYMBOL:
        return quoted(record.getSymA(column));
      case ColumnType.VARCHAR:
        return quoted(record.getVarcharA(column));
      default:
        StringSink text = new StringSink();
        CursorPrinter.printColumn(record, metadata, column, text, false);
        return text.length() == 0 ? "null" : quoted(text);
    }
  }

  private static String wide(long value) {
    return value == Numbers.LONG_NULL ? "null" : String.valueOf(value);
  }

  private static String quoted(Object text) {
    if (text == null) {
      return "null";
    }
    StringBuilder json = new StringBuilder("\"");
    for (char each : text.toString().toCharArray()) {
      json.append(
          each < 32 || each == '"' || each == '\\' ? String.format("\\u%04x", (int) each) : each);
    }
    return json.append('"').toString();
  }
}
